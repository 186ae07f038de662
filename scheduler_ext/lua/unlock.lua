-- Remove a lock, if it is still one's own.
-- KEYS[1]: the lock. ARGV[1]: the token it was set with. Returns 1 when it was removed.
if redis.call('TYPE', KEYS[1])['ok'] == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
