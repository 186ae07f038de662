# attack: Folders in folders without end, which tools that clean up cannot walk
# expect: disk
while True:
    os.mkdir("d")
    os.chdir("d")
