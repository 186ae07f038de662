# attack: Leave a result whose nesting ends whoever reads it
# expect: fault
with open(os.environ["SLACKWATER_RESULT"], "w") as file:
    file.write("[" * 200_000 + "]" * 200_000)
