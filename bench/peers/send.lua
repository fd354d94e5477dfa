-- For wrk: one kept-alive client after another sends what the lines of a file say, and every answer's status is counted.
--
-- arguments: METHOD PATH FILE NUMBER
-- A line is a body for PATH (POST), or what follows PATH (GET). In a body, the stamp becomes twelve digits: NUMBER, which
-- tells this run from others, the thread, and a count, so that no body is sent twice. Prints one line of JSON at the end.

local STAMP = string.rep("@", 12)
local threads = {}

function setup(thread)
  thread:set("place", #threads)
  table.insert(threads, thread)
end

function init(arguments)
  method, path, number = arguments[1], arguments[2], tonumber(arguments[4])
  lines, sent, counts = {}, 0, ""
  for line in io.lines(arguments[3]) do lines[#lines + 1] = line end
  statuses = {}
end

function request()
  -- Threads begin at different lines.
  local line = lines[(sent + place * 499) % #lines + 1]
  sent = sent + 1
  if method == "GET" then return wrk.format(method, path .. line) end
  local stamp = string.format("%04d%02d%06d", number, place, sent)
  return wrk.format(method, path, nil, (line:gsub(STAMP, stamp)))
end

function response(status)
  statuses[status] = (statuses[status] or 0) + 1
  -- Only texts and numbers pass from a thread to the end.
  local told = {}
  for one, times in pairs(statuses) do told[#told + 1] = string.format('"%d":%d', one, times) end
  counts = table.concat(told, ",")
end

function done(summary, latency)
  local told = {}
  for _, thread in ipairs(threads) do told[#told + 1] = "{" .. thread:get("counts") .. "}" end
  local lost = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  print(string.format('{"seconds":%f,"lost":%d,"p50_ms":%f,"p99_ms":%f,"statuses":[%s]}', summary.duration / 1e6, lost,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, table.concat(told, ",")))
end
