#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What tallyd is for, in half a minute: several processes work for the same tenants, and each tenant
# has one account, one limit, and gets back what a killed process held for it. The script checks
# what it claims and fails if it is not so. It needs no privileges and leaves nothing behind.
#
# Usage: BUILD=DIR demo.sh, with tallyd, tallyctl, examples/sqlite-tenants and sqlite-cache in DIR.

set -u

build=${BUILD:?the directory of the built programs}
dir=$(mktemp -d "${TMPDIR:-/tmp}/tally-demo.XXXXXX") || exit 1
socket=$dir/run/tallyd.sock
export TALLY_ADDRESS=unix:$socket LC_ALL=C
unset NOTIFY_SOCKET RUNTIME_DIRECTORY
limit=$((6 << 20))
cache_limit=$((12 << 20))
neighbour_needs=$((8 << 20))
rows=60000
daemon=
workers=()

cleanup() {
	[ ${#workers[@]} -eq 0 ] || kill -KILL "${workers[@]}" 2>/dev/null
	[ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() {
	printf '\n== %s\n' "$*"
}

fail() {
	printf '\ndemo failed: %s\n' "$*" >&2
	tail -n 20 "$dir"/*.out >&2
	exit 1
}

ctl() {
	"$build/tallyctl" --socket "$socket" "$@"
}

current() {
	ctl get "$1" memory.current --exact
}

human() {
	numfmt --to=iec "$1"
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds.
wait_for() {
	local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))

	shift
	until "$@"; do
		[ "${EPOCHREALTIME/[.,]/}" -lt "$end" ] || return 1
		sleep 0.05
	done
}

is_up() {
	[ -e "$socket" ] && ctl status >/dev/null 2>&1
}

one_is_refused() {
	grep -q '^t4 refused' "$dir"/worker*.out
}

all_hold() {
	[ "$(cat "$dir"/worker*.out | grep -c '^holding')" -eq 3 ]
}

has_fallen_to() {
	[ "$(current /sqlite)" -eq "$1" ]
}

count_passes() {
	grep -c '^pass=' "$dir/cache.out"
}

cache_has_passed() {
	[ "$(count_passes)" -ge "$1" ]
}

neighbour_has() {
	[ "$(current /caches/b)" -eq $neighbour_needs ]
}

say "A private tallyd; the pool /sqlite/t4 may have $(human $limit)"
mkdir "$dir/run"
cat >"$dir/tallyd.conf" <<END
[daemon]
flush_interval = 2s
[pool t4]
path = /sqlite/t4
memory.max = $limit
[pool caches]
path = /caches
memory.max = $cache_limit
[pool trial]
path = /trial
memory.max = 1M
enforce = observe
END
"$build/tallyd" --config "$dir/tallyd.conf" --runtime-dir "$dir/run" >"$dir/tallyd.out" 2>&1 &
daemon=$!
wait_for 5 is_up || fail "the daemon does not answer"

say "Three processes, each with four tenants, share the pools /sqlite/t1 … /sqlite/t4"
touch "$dir"/worker{0,1,2}.out
for i in 0 1 2; do
	"$build/examples/sqlite-tenants" --tenants 4 --rows $rows --hold 60 \
		>"$dir/worker$i.out" 2>&1 &
	workers+=($!)
done
echo "process ids: ${workers[*]}"

wait_for 20 one_is_refused || fail "no process met the limit of t4"
say "The first process meets the limit of t4; the others' work goes on"
ctl tree /sqlite || fail "no tree"
t1_then=$(current /sqlite/t1)
grep -h '^t4 refused' "$dir"/worker*.out

wait_for 40 all_hold || fail "the work does not come to its end"
say "All have done what they could and keep their databases open"
ctl tree /sqlite || fail "no tree"
t1_now=$(current /sqlite/t1)
t4_now=$(current /sqlite/t4)
echo "t1 held $(human "$t1_then") then, holds $(human "$t1_now") now; t4 holds $(human "$t4_now")"
ctl get /sqlite/t4 memory.events

say "t4 was held at its limit and lost nothing that it had committed; its neighbours finished"
grep -H '^t[0-9] rows' "$dir"/worker*.out | sed "s|^$dir/||"
for i in 0 1 2; do
	[ "$(grep -c "^t[123] rows=$rows .*result=finished" "$dir/worker$i.out")" -eq 3 ] ||
		fail "a neighbour of t4 did not finish"
	grep -q '^t4 .*result=refused' "$dir/worker$i.out" || fail "t4 was not refused"
done
[ "$t4_now" -le $limit ] || fail "t4 holds more than its limit"
[ "$t4_now" -gt $((limit / 2)) ] || fail "t4 was refused far below its limit"

victim=${workers[1]}
held=$(sed -n 's/.* held=\([0-9]*\).*/\1/p' "$dir/worker1.out" | awk "{ n += \$1 } END { print n }")
before=$(current /sqlite)
say "Process $victim holds $(human "$held") of the $(human "$before") in /sqlite; kill -9 $victim"
kill -KILL "$victim"
wait "$victim" 2>/dev/null
unset 'workers[1]'
wait_for 2 has_fallen_to $((before - held)) ||
	fail "/sqlite holds $(current /sqlite) after 2 s, not $((before - held))"
ctl tree /sqlite
echo "before $before, after $(current /sqlite): exactly the $held bytes of the killed process less"

say "The other two close their databases and end"
for i in 0 2; do
	kill -TERM "${workers[$i]}"
	wait "${workers[$i]}" || fail "process ${workers[$i]} ended with status $?"
	unset "workers[$i]"
done
wait_for 2 has_fallen_to 0 || fail "/sqlite still holds $(current /sqlite)"
echo "/sqlite holds $(current /sqlite)"

say "A process with a page cache may use what nobody else needs of $(human $cache_limit)"
"$build/examples/sqlite-cache" /caches/a >"$dir/cache.out" 2>&1 &
workers=($!)
wait_for 30 cache_has_passed 3 || fail "the cache does not work"
ctl tree /caches
before=$(current /caches/a)
[ "$before" -gt $((cache_limit - neighbour_needs)) ] || fail "the cache is too small to matter"

say "A neighbour needs $(human $neighbour_needs): the cache is asked to give back, and goes on"
ctl create /caches/b || fail "no pool for the neighbour"
ctl run /caches/b $neighbour_needs -- sleep 60 >"$dir/neighbour.out" 2>&1 &
workers+=($!)
wait_for 10 neighbour_has || fail "the neighbour did not get its memory"
passes=$(count_passes)
wait_for 20 cache_has_passed $((passes + 2)) || fail "the cache did not go on"
ctl tree /caches
after=$(current /caches/a)
echo "the cache held $(human "$before"), holds $(human "$after") now; its last pass:"
tail -n 1 "$dir/cache.out"
[ "$after" -le $((cache_limit - neighbour_needs)) ] || fail "the cache gave nothing back"
ctl get /caches memory.events
kill -KILL "${workers[1]}"
wait "${workers[1]}" 2>/dev/null
kill -TERM "${workers[0]}"
wait "${workers[0]}" || fail "the cache ended with status $?"
workers=()

say "A limit on trial (enforce = observe): the same work passes 1M and is told so, not refused"
"$build/examples/sqlite-cache" --passes 2 /trial >"$dir/trial.out" 2>&1 ||
	fail "the work on trial did not finish"
tail -n 1 "$dir/trial.out"
ctl get /trial memory.events
would=$(ctl get /trial memory.events | sed -n 's/^would_refuse //p')
[ "$would" -gt 0 ] || fail "the limit on trial counted nothing"
grep -q ' refused=0$' "$dir/trial.out" || fail "the limit on trial refused something"
echo "memory.max = 1M would have refused $would charges"

say "The daemon ends"
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon ended with status $?"
daemon=
echo "all claims held"
