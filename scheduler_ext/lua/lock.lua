-- Take a lock, renew one's own, or replace that of an earlier holder.
-- KEYS[1]: the lock. ARGV[1]: the token, "fence:holder"; fences rise. ARGV[2]: how long it lives, in milliseconds.
-- Returns 1, or 0 when a later holder has it.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return 1
end
-- What is no lock is in nobody's hands.
local fence = redis.call('TYPE', KEYS[1])['ok'] == 'string'
    and tonumber(string.match(redis.call('GETRANGE', KEYS[1], 0, 20), '^(%d+):'))
if fence and fence > tonumber(string.match(ARGV[1], '^(%d+):')) then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
