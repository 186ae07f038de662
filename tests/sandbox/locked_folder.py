# attack: Leave folders nobody may enter and files nobody may change, so that the next script inherits them
# expect: refused
os.makedirs("a/b/c")
open("a/b/c/left", "w").write("for the next")
os.chmod("a/b", 0)
os.chmod("a", 0)
os.chmod(".", 0o500)
print("refused: whether it is left is looked at from outside", flush=True)
