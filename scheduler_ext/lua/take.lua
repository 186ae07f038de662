-- Take claims from a node's queues for one batch, urgent first.
-- KEYS: the node's lists in the order in which they are served.
-- ARGV[1]: the most claims to take. ARGV[2]: expected work, in microseconds, with which a batch is full.
--   ARGV[3]: a claim expected to run longer than this (or 0, not known) is taken alone; negative: none is.
-- Each entry is "expected microseconds:task id:fence". Returns the entries taken, then the number left, then how many
-- that are no such entries were thrown away (a key that is no list counts as one).
local most, budget, short = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local taken, sum, full, left, thrown = {}, 0, false, 0, 0
for _, key in ipairs(KEYS) do
    local here = 0
    local kind = redis.call('TYPE', key)['ok']
    if kind ~= 'list' and kind ~= 'none' then
        redis.call('DEL', key)
        thrown = thrown + 1
    end
    if not full then
        local entries = redis.call('LRANGE', key, 0, most - #taken - 1)
        for _, entry in ipairs(entries) do
            local expected = #entry < 80 and tonumber(string.match(entry, '^(%d+):[%x-]+:%d+$'))
            if not expected then
                here = here + 1
                thrown = thrown + 1
            else
                local alone = short >= 0 and (expected == 0 or expected > short)
                if #taken > 0 and (alone or sum >= budget) then
                    full = true
                    break
                end
                here = here + 1
                taken[#taken + 1] = entry
                sum = sum + expected
                if alone or #taken >= most then
                    full = true
                    break
                end
            end
        end
        if here > 0 then
            redis.call('LTRIM', key, here, -1)
        end
    end
    left = left + redis.call('LLEN', key)
end
taken[#taken + 1] = tostring(left)
taken[#taken + 1] = tostring(thrown)
return taken
