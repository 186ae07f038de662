# attack: Files without end, each empty: the file system's table of files
# expect: disk
number = 0
while True:
    number += 1
    open(f"file-{number}", "w").close()
