# attack: Attach to shared memory, queues and semaphores of other processes
# expect: refused
# plain: escapes
attempt("shared memory", call, (29, 194), TARGET["shm_key"], 16, 0)
attempt("shared memory by its id", call, (30, 196), TARGET["shm_id"], 0, 0)
