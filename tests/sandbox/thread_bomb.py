# attack: Threads without end
# expect: processes
import threading

while True:
    threading.Thread(target=time.sleep, args=(60,)).start()
