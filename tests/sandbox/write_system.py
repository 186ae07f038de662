# attack: Change the system's programs, the platform's code or the script itself
# expect: refused
def write(path):
    with open(path, "ab") as file:
        return file.write(b"#")


for folder in ("/usr/bin", "/usr/lib", "/etc", "/bin", "/", "/dev", "/var", "/opt", "/run", TARGET["code"]):
    attempt(folder, write, f"{folder}/owned")
attempt("a program", write, "/usr/bin/env")
attempt("the loader's cache", write, "/etc/ld.so.cache")
attempt("the script", write, f"{os.environ['HOME']}/script")
attempt("the inputs", write, os.environ["SLACKWATER_INPUTS"])
attempt("the secret", write, TARGET["secret"])
