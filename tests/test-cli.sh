#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tallyctl against a real tallyd: what a person types, what they get to read, and the exit status that
# their scripts see. Prints TAP. $TALLYD and $TALLYCTL name the programs.

TALLYD=${TALLYD:-./tallyd}
TALLYCTL=${TALLYCTL:-./tallyctl}
unset TALLY_ADDRESS RUNTIME_DIRECTORY NOTIFY_SOCKET POSIXLY_CORRECT
export LC_ALL=C

work=$(mktemp -d "${TMPDIR:-/tmp}/test-cli.XXXXXX") || exit 1
socket=$work/run/tallyd.sock
daemon=
holders=()
number=0

cleanup() {
	local pid

	for pid in "${holders[@]}" $daemon; do
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# ------------------------------------------------------------------ helpers

# report STATUS TEXT: one TAP line; a failure shows what the last call of tallyctl did.
report() {
	number=$((number + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $number - $2"
		return
	fi
	echo "not ok $number - $2"
	echo "#   command: ${last[*]@Q}"
	echo "#   status: $status"
	sed 's/^/#   stdout: /' "$work/out"
	sed 's/^/#   stderr: /' "$work/err"
}

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# check TEXT COMMAND ...: the command succeeds.
check() {
	local text=$1

	shift
	"$@" >/dev/null 2>&1
	report $? "$text"
}

ctl() {
	last=("$@")
	"$TALLYCTL" --socket "$socket" "$@" >"$work/out" 2>"$work/err"
	status=$?
}

# works TEXT ARGUMENT ...: status 0, nothing on stderr.
works() {
	local text=$1

	shift
	ctl "$@"
	[ $status -eq 0 ] && [ ! -s "$work/err" ]
	report $? "$text"
}

# prints TEXT OUTPUT ARGUMENT ...: works, and stdout is exactly that.
prints() {
	local text=$1 expected=$2

	shift 2
	ctl "$@"
	[ $status -eq 0 ] && [ ! -s "$work/err" ] && [ "$(cat "$work/out")" = "$expected" ]
	report $? "$text"
}

# shows TEXT REGEX ARGUMENT ...: works, and a line of stdout matches.
shows() {
	local text=$1 regex=$2

	shift 2
	ctl "$@"
	[ $status -eq 0 ] && [ ! -s "$work/err" ] && grep -Eq -- "$regex" "$work/out"
	report $? "$text"
}

told_one_line() {
	[ "$(wc -l <"$work/err")" -eq 1 ] && grep -q '^tallyctl: ' "$work/err"
}

# fails STATUS REGEX TEXT ARGUMENT ...: that status, nothing on stdout, one matching line on stderr.
fails() {
	local expected=$1 regex=$2 text=$3

	shift 3
	ctl "$@"
	[ $status -eq "$expected" ] && [ ! -s "$work/out" ] && told_one_line &&
		grep -Eq -- "$regex" "$work/err"
	report $? "$text"
}

# is_cut: the last message has no more than 64 bytes of a long text, and says so.
is_cut() {
	grep -Eq "'y{64}…" "$work/err" && ! grep -q 'y\{65\}' "$work/err"
	report $? "the message about it is cut"
}

# json TEXT EXPRESSION ARGUMENT ...: works, and the Python expression about the JSON `j` is true.
json() {
	local text=$1 expression=$2

	shift 2
	if ! command -v python3 >/dev/null; then
		skip "$text" "no python3"
		return
	fi
	ctl --json "$@"
	[ $status -eq 0 ] && [ ! -s "$work/err" ] &&
		python3 -c 'import json, sys; j = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(not eval("(" + sys.argv[2] + ")"))' "$work/out" "$expression" 2>>"$work/err"
	report $? "$text"
}

get() {
	"$TALLYCTL" --socket "$socket" get "$1" "$2" 2>/dev/null
}

# key POOL KEY: a figure of memory.stat.
key() {
	get "$1" memory.stat | sed -n "s/^$2 //p"
}

has() {
	[ "$(get "$1" "$2")" = "$3" ]
}

has_key() {
	[ "$(key "$1" "$2")" = "$3" ]
}

has_process() {
	get "$1" cgroup.procs | grep -qx "$2"
}

# has_waiter POOL: somebody waits there.
has_waiter() {
	get "$1" pool.clients | grep -q ' waiting=[1-9]'
}

# soon COMMAND ...: it succeeds within a second.
soon() {
	for _ in $(seq 40); do
		"$@" && return 0
		sleep 0.025
	done
	return 1
}

# hold ARGUMENT ...: `run ARGUMENT ... -- sleep 3600` in the background; its pid is in $holder.
hold() {
	"$TALLYCTL" --socket "$socket" run "$@" -- sleep 3600 >"$work/hold.out" 2>"$work/hold.err" &
	holder=$!
	holders+=("$holder")
}

end_holder() {
	kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

# has_failed PID FILE REGEX: a `run` in the background ends with 1, in one line that matches.
has_failed() {
	wait "$1"
	status=$?
	cp "$2" "$work/err"
	: >"$work/out"
	last=("what waited")
	[ $status -eq 1 ] && told_one_line && grep -Eq -- "$3" "$work/err"
}

write_config() {
	cat >"$work/tallyd.conf" <<END
[stat buffers]
type = gauge
unit = bytes
help = Buffers
[stat hits]
type = event
[pool device]
path = /device
standalone = yes
[pool tenants]
path = /tenants
memory.max = 16M
[pool tenant-a]
path = /tenants/a
memory.max = $1
END
}

start_daemon() {
	mkdir "$work/run"
	"$TALLYD" --config "$work/tallyd.conf" --runtime-dir "$work/run" >"$work/log" 2>&1 &
	daemon=$!
	for _ in $(seq 200); do
		"$TALLYCTL" --socket "$socket" status >/dev/null 2>&1 && return
		kill -0 $daemon 2>/dev/null || break
		sleep 0.05
	done
	sed 's/^/# /' "$work/log"
	echo "Bail out! $TALLYD does not serve $socket"
	exit 1
}

part() {
	printf "%${1}s" '' | tr ' ' "${2:-p}"
}

# ------------------------------------------------------------------ the command line alone

test_usage() {
	local command

	fails 2 'no command' "no command"
	fails 2 "unknown command 'frob'" "an unknown command" frob
	fails 2 "unknown option '--frob'" "an unknown option" --frob status
	fails 2 "unknown option '-x'" "an unknown letter" -x status
	fails 2 "unknown option '--frob'" "an unknown option of a command" status --frob
	fails 2 "'--depth' does not go with" "an option of another command" status --depth 1
	fails 2 "'--depth' does not go with" "an option of a command in front of it" --depth 1 tree
	fails 2 "'--json' takes no argument" "an argument too many" --json=1 status
	fails 2 "needs an argument" "an argument missing" tree --depth
	fails 2 "needs the path" "an empty socket path" --socket '' status

	shows "--help lists the commands" '^  tree ' --help
	shows "--version" '^tallyctl [0-9]' --version
	for command in status tree get set create remove run clients drain flush reload; do
		shows "$command --help" "^Usage: tallyctl .*$command" $command --help
	done

	fails 2 "superfluous argument 'x'" "status takes no argument" status x
	fails 2 "superfluous" "tree takes one pool" tree / /
	fails 2 "too few" "get wants two arguments" get /
	fails 2 "superfluous" "get takes one file" get / memory.current memory.max
	fails 2 "too few" "set wants FILE=VALUE" set /
	fails 2 "'memory.max' is not FILE=VALUE" "set wants a value" set / memory.max
	fails 2 "is not FILE=VALUE" "set wants a file" set / =1
	fails 2 "is not FILE=VALUE" "even before two of =" set / =1=2
	fails 2 "too few" "create wants a pool" create
	fails 2 "is not FILE=VALUE" "create wants FILE=VALUE" create /x memory.max
	fails 2 "too few" "remove wants a pool" remove
	fails 2 "superfluous" "remove takes one pool" remove /x /y
	fails 2 "too few" "drain wants a pool" drain
	fails 2 "too few" "flush wants a pool" flush
	fails 2 "superfluous" "reload takes no argument" reload /
	fails 2 "superfluous" "clients takes one pool" clients / /

	for command in 'set / memory.max=max' 'create /x' 'remove /x' 'run / 1K -- true' 'drain /' \
		'flush /' 'reload'; do
		# shellcheck disable=SC2086
		fails 2 "--json does not go with" "no JSON of '$command'" --json $command
	done
	fails 2 "--save is not available" "set --save" set --save / memory.max=max
	fails 2 "--persistent is not available" "clients --persistent" clients --persistent

	for command in '' x -1 +1 1.5 1K ' 1' 99999999999999999999; do
		fails 2 "--depth wants" "tree --depth '$command'" tree --depth "$command"
	done
	fails 2 "wants POOL BYTES" "run without anything" run
	fails 2 "wants POOL BYTES" "run without a pool" run -- true
	fails 2 "wants POOL BYTES" "run without bytes" run / -- true
	fails 2 "no '--'" "run without --" run / 1K true
	fails 2 "no COMMAND" "run without a command" run / 1K --
	fails 2 "stand before POOL" "run with an option behind BYTES" run / 1K --item buffers -- true
	fails 2 "'/tenants' has no BYTES" "run with a pool and no bytes" run / 1K /tenants -- true
	fails 2 "BYTES wants digits" "run with bad bytes behind good ones" run / 1K /tenants x -- true
	for command in '' x -1 1.5 1x 10d 99999999999999999999 99999999999999999h; do
		fails 2 "--timeout wants" "run --timeout '$command'" \
			run --timeout "$command" / 1K -- true
	done
	for command in '' x K -1 +1 1.5K '1 K' 1KB 0x10 max 1KK; do
		fails 2 "BYTES wants digits" "run with '$command' bytes" run / "$command" -- true
	done
	for command in 8T 8796093022208 9P 16E 99999999999999999999; do
		fails 2 "BYTES wants less" "run with $command bytes" run / "$command" -- true
	done
	for command in '' x -1 256 1.0; do
		fails 2 "--refused-status wants" "run --refused-status '$command'" \
			run --refused-status "$command" / 1K -- true
	done
}

# ------------------------------------------------------------------ reaching the daemon

# address STATUS REGEX TEXT ADDRESS: `status` with that $TALLY_ADDRESS alone.
address() {
	last=("TALLY_ADDRESS=$4" status)
	TALLY_ADDRESS=$4 "$TALLYCTL" status >"$work/out" 2>"$work/err"
	status=$?
	if [ "$1" -eq 0 ]; then
		[ $status -eq 0 ] && [ ! -s "$work/err" ] && grep -Eq -- "$2" "$work/out"
	else
		[ $status -eq "$1" ] && [ ! -s "$work/out" ] && told_one_line &&
			grep -Eq -- "$2" "$work/err"
	fi
	report $? "$3"
}

# An empty $TALLY_ADDRESS is none: whatever is at the default address, that is what is named.
test_default_address() {
	local reached="the default address holds when the environment's is empty"

	last=(TALLY_ADDRESS= status)
	TALLY_ADDRESS='' "$TALLYCTL" status >"$work/out" 2>"$work/err"
	status=$?
	if [ $status -eq 0 ]; then
		skip "$reached" "a tallyd serves it"
		return
	fi
	[ $status -eq 1 ] && told_one_line && grep -q ' unix:/run/tallyd/tallyd.sock' "$work/err"
	report $? "$reached"
}

# other UID ARGUMENT ...: as another user.
other() {
	local uid=$1

	shift
	last=("uid $uid" "$@")
	setpriv --reuid "$uid" --regid "$uid" --clear-groups "$TALLYCTL" --socket "$socket" "$@" \
		>"$work/out" 2>"$work/err"
	status=$?
}

# other_works TEXT UID ARGUMENT ...
other_works() {
	local text=$1

	shift
	other "$@"
	[ $status -eq 0 ] && [ ! -s "$work/err" ]
	report $? "$text"
}

# other_fails REGEX TEXT UID ARGUMENT ...: status 1, one line that matches.
other_fails() {
	local regex=$1 text=$2

	shift 2
	other "$@"
	[ $status -eq 1 ] && [ ! -s "$work/out" ] && told_one_line && grep -Eq -- "$regex" "$work/err"
	report $? "$text"
}

test_other_users() {
	local text="other users are let in, and told whom to ask" pid
	local no='root or a member of admin_group'

	if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null; then
		skip "$text" "needs root and setpriv"
		return
	fi
	chmod 711 "$work"
	if ! setpriv --reuid 60001 --regid 60001 --clear-groups "$TALLYCTL" --version >/dev/null 2>&1 ||
		! setpriv --reuid 60001 --regid 60001 --clear-groups test -w "$socket"; then
		skip "$text" "another user cannot reach the program or the socket"
		return
	fi
	works "a pool for another user" create /team pool.owner=60001:60001
	prints "whose it is now" 60001:60001 get /team pool.owner
	works "names of users are numbers by then" set /team pool.owner=root:root
	prints "and are shown so" 0:0 get /team pool.owner
	fails 1 "/team: there is no user 'no-such-user'" "an unknown user" \
		set /team pool.owner=no-such-user:root
	fails 1 "/team: there is no group 'no-such-group'" "an unknown group" \
		set /team pool.owner=root:no-such-group
	fails 1 "'root' is no value of pool.owner; give USER:GROUP" "half an owner" \
		set /team pool.owner=root
	fails 1 "'0999' is no value of pool.mode; give octal" "no mode" set /team pool.mode=0999
	works "numbers" set /team pool.owner=60001:60001
	other_works "its owner makes pools below it" 60001 create /team/a memory.max=1M
	other_works "and sees the whole" 60001 tree
	other_fails "^tallyctl: /team: uid 60001 may not set memory.max: only the owner of a pool above it may, not its own; ask root \(uid 0\), who owns /, $no\$" \
		"the own limit" 60001 set /team memory.max=1M
	other_fails "^tallyctl: /team: uid 60001 may not remove it: only the owner of a pool above" \
		"the own pool" 60001 remove /team
	other_fails "^tallyctl: /team/a: uid 60002 may not set memory.max: the mode of /team, 0754, does not allow it; ask uid 60001, who owns /team, $no\$" \
		"somebody else's limit" 60002 set /team/a memory.max=1G
	other_fails "^tallyctl: /team/b: uid 60002 may not make it: the mode of /team, 0754, does not allow" \
		"a pool in somebody else's" 60002 create /team/b
	other_fails "^tallyctl: /x: uid 60002 may not make it: the mode of /, 0754, does not .* root \(uid 0\)" \
		"a pool at the top" 60002 create /x
	other_fails "^tallyctl: /team: uid 60002 may not attach to it: the mode of /team, 0754, does" \
		"attaching" 60002 run /team 1K -- true
	other_fails "^tallyctl: /team: uid 60002 may not set pool.drain: the mode of /team, 0754" \
		"draining" 60002 drain /team
	other_works "flushing is reading" 60002 flush /team
	other_fails "^tallyctl: reload: uid 60001 may not do that: only root and members of admin_group" \
		"reloading" 60001 reload
	other_fails "^tallyctl: /team/a: uid 60001 may not set pool.owner: only root and members of admin" \
		"giving away" 60001 set /team/a pool.owner=60002:60002
	other_fails "'memory.stat' cannot be written; it can only be read" "what nobody writes" \
		60001 set /team/a memory.stat=1
	other_works "the owner above closes a pool" 60001 set /team/a pool.mode=0700
	other_fails "^tallyctl: /team/a: uid 60002 may not read it: the mode of /team/a, 0700" \
		"reading it" 60002 get /team/a memory.stat
	other 60002 tree
	[ $status -eq 0 ] && told_one_line && grep -q '[ -]team ' "$work/out" && ! grep -q ' 1M ' "$work/out" &&
		grep -q '^tallyctl: /: 1 pool below it is left out: their modes do not let uid 60002' "$work/err"
	report $? "a tree says what it leaves out"
	other_works "a place of one's own" 60002 create /users/60002/x
	other_fails "/users/60001: uid 60002 may not make it: the mode of /users, 0754" \
		"somebody else's" 60002 create /users/60001

	setpriv --reuid 60001 --regid 60001 --clear-groups "$TALLYCTL" --socket "$socket" \
		run /team 1K -- sleep 600 &
	pid=$!
	holders+=("$pid")
	for _ in $(seq 600); do
		ctl get /team cgroup.procs
		[ "$(cat "$work/out")" = "$pid" ] && break
		sleep 0.1
	done
	other_fails "^tallyctl: uid 60002 may not evict process $pid: .* ask root or a member" \
		"evicting" 60002 evict "$pid"
	works "root does" evict "$pid"
	prints "and nobody is left" "" get /team cgroup.procs
	fails 1 "no client of tallyd has process id $pid" "evicting nobody" evict "$pid"
	fails 2 "evict: PID wants the number of a process, not 'x'" "no process id" evict x
	kill "$pid"
	wait "$pid" 2>/dev/null
	works "all of it goes" remove --recursive /team
	works "and that" remove --recursive /users
}

test_reaching() {
	local long

	long=$work/$(part 120)
	address 0 '^version' "the address of the environment" "unix:$socket"
	address 1 "no tallyd at unix:$work/none; start it" "no daemon there" "unix:$work/none"
	address 1 "is no address" "an address of no kind" "tcp:localhost"
	address 1 "is the engine inside a program" "no embedded engine" "embedded:"
	fails 1 "no tallyd at unix:$work/none; start it with 'tallyd'.*--socket" \
		"--socket where nothing is" --socket "$work/none" status
	fails 1 "tallyd.conf is no socket" "--socket names a file" --socket "$work/tallyd.conf" status
	address 1 "unix:$work is no socket" "an address that is a directory" "unix:$work"
	address 1 "write unix:$socket" "an address that is a path" "$socket"
	works "--socket takes an address" --socket "unix:$socket" status
	TALLY_PERCPU=fast fails 1 "TALLY_PERCPU is neither" "a kind of operation that there is not" status
	fails 2 "needs the path" "--socket with no path in the address" --socket unix: status
	fails 1 "no tallyd at unix:$work/none;" "the prefix is shown once" \
		--socket "unix:$work/none" status
	test_default_address
	test_other_users
	fails 1 "is no address" "--socket is too long" --socket "$long" status
	fails 1 "no tallyd at" "--socket behind the command" status --socket "$work/none"
	last=(status)
	TALLY_ADDRESS=unix:$work/none "$TALLYCTL" --socket "$socket" status >"$work/out" 2>"$work/err"
	status=$?
	report $status "--socket holds over the environment"
}

# loses TEXT REDIRECTION ARGUMENT ...: with stdout redirected so, the output cannot be written.
loses() {
	local text=$1 redirection=$2

	shift 2
	last=("$@" "$redirection")
	: >"$work/out"
	eval '"$TALLYCTL" --socket "$socket" "$@" 2>"$work/err"' "$redirection"
	status=$?
	[ $status -eq 1 ] && told_one_line && grep -q 'cannot write the output' "$work/err"
	report $? "$text"
}

test_output() {
	if [ -c /dev/full ]; then
		loses "a full disk is an error" '>/dev/full' status
		loses "of --help too" '>/dev/full' --help
		loses "of the help of a command too" '>/dev/full' get --help
	else
		skip "a full disk is an error" "no /dev/full"
	fi
	loses "a closed stdout is an error" '>&-' status
	loses "of --help too" '>&-' --help
	loses "of --version too" '>&-' --version
	loses "with stdin closed too" '>&- <&-' tree

	last=(set / memory.max=max '>&-')
	"$TALLYCTL" --socket "$socket" set / memory.max=max >&- 2>"$work/err"
	status=$?
	[ $status -eq 0 ] && [ ! -s "$work/err" ]
	report $? "what prints nothing needs no stdout"

	last=(get /tenants memory.max '<&- 2>&-')
	: >"$work/err"
	"$TALLYCTL" --socket "$socket" get /tenants memory.max >"$work/out" <&- 2>&-
	status=$?
	[ $status -eq 0 ] && [ "$(cat "$work/out")" = 16777216 ]
	report $? "stdin and stderr may be closed"

	last=(run / 0 -- readlink '<&- 2>&-')
	# shellcheck disable=SC2016
	"$TALLYCTL" --socket "$socket" run / 0 -- sh -c 'readlink /proc/$$/fd/0 /proc/$$/fd/2' \
		>"$work/out" <&- 2>&-
	status=$?
	[ $status -eq 0 ] && [ "$(sort -u "$work/out")" = /dev/null ]
	report $? "COMMAND finds no socket in their place"
}

# ------------------------------------------------------------------ looking

test_looking() {
	local figure

	for figure in version uptime sessions pools grants refusals drains flushes percpu; do
		shows "status has $figure" "^$figure +[^ ]" status
	done
	json "status as JSON" 'j["pools"] >= 3 and j["uptime_usec"] >= 0 and
		isinstance(j["version"], str)' status
	json "--json behind the command" '"sessions" in j' status --json

	ctl tree
	[ $status -eq 0 ] && [ "$(head -n 1 "$work/out" | cut -d ' ' -f 1)" = / ]
	report $? "tree begins with the root"
	shows "an unlimited pool has no bar" '^/ .*limit +max$' tree
	shows "tree shows a limit and a bar" '^\|?.*a  +held +0  idle +0  limit +4M  \[\.{20}\]$' tree
	prints "tree --depth 0" "/tenants  held  0  idle  0  limit  16M  [....................]" \
		tree /tenants --depth 0
	ctl tree --depth 1
	[ $status -eq 0 ] && grep -q tenants "$work/out" && ! grep -q -- '- a ' "$work/out"
	report $? "tree --depth 1"
	ctl tree
	! grep -q $'\033' "$work/out"
	report $? "no colours"
	json "tree as JSON" '[p["path"] for p in j] == ["/tenants", "/tenants/a"] and
		[p["limit"] for p in j] == [16 << 20, 4 << 20] and
		all(p["held"] == 0 for p in j)' tree /tenants
	json "no limit as JSON" 'j[0]["limit"] == "max"' tree --depth 0
	fails 1 "/none: no such pool; create it" "tree of no pool" tree /none

	prints "get memory.current" 0 get /tenants memory.current
	prints "get memory.max" 16777216 get /tenants memory.max
	prints "get --exact" 0 get /tenants memory.current --exact
	prints "get of the root" max get / memory.max
	prints "get pool.children" a get /tenants pool.children
	prints "get cgroup.procs of a pool without clients" '' get /tenants cgroup.procs
	shows "get memory.stat" '^held 0$' get /tenants memory.stat
	shows "get memory.stat has the items" '^buffers 0$' get /tenants memory.stat
	shows "get memory.events" '^max [0-9]+$' get /tenants memory.events
	shows "get tallyd.status" '^sessions [0-9]+$' get / tallyd.status
	json "a number as JSON" 'j == {"pool": "/tenants", "file": "memory.max", "value": 16777216}' \
		get /tenants memory.max
	json "max as JSON" 'j["value"] == "max"' get / memory.max
	json "lines as JSON" 'j["value"] == ["a"]' get /tenants pool.children
	json "no lines as JSON" 'j["value"] == []' get /tenants cgroup.procs
	shows "get memory.numa_stat" '^buffers N0=0( N[0-9]+=0)*$' get /tenants memory.numa_stat
	json "nodes as JSON" 'j["value"]["buffers"]["N0"] == 0' get /tenants memory.numa_stat
	shows "get memory.pressure" '^full avg10=[0-9]+[.][0-9][0-9] .* total=[0-9]+$' \
		get /tenants memory.pressure
	json "pressure as JSON" 'j["value"]["some"]["total"] >= 0' get /tenants memory.pressure
	json "key and value as JSON" 'j["value"]["held"] == 0' get /tenants memory.stat
	fails 1 "/none: no such pool; create it with 'tallyctl create /none'" "get of no pool" \
		get /none memory.current
	fails 1 "/tenants: no file 'memory.frob'" "get of no file" get /tenants memory.frob
	fails 1 "/tenants: no file 'MEMORY.MAX'" "files have one spelling" get /tenants MEMORY.MAX
	fails 1 "/tenants: no file ''" "get of an empty file name" get /tenants ''
	fails 1 "/tenants: no file '../a'" "a file is no path" get /tenants ../a
	fails 1 "no file" "files of the root pool are there alone" get /tenants tallyd.status
	fails 1 "'pool.drain' cannot be read" "get of a file to be written" get /tenants pool.drain
	fails 1 "'pool.flush' cannot be read" "get of another" get /tenants pool.flush

	prints "clients of a pool without any" '' clients /tenants
	json "the same as JSON" 'j == []' clients /tenants
	fails 1 "/none: no such pool" "clients of no pool" clients /none
}

# ------------------------------------------------------------------ pools and their names

# The characters in front of the figures, for each line of a tree.
print_widths() {
	local LC_ALL=C.UTF-8 line

	while IFS= read -r line; do
		line=${line%%  held*}
		echo ${#line}
	done
}

test_paths() {
	local path

	for path in '' a a/b // /a/ //a /a//b /. /.. /tenants/. /tenants/../tenants $'/a\nb' \
		$'/a\tb' $'/a\x7f' $'/a\x01' ; do
		fails 1 "is no path of a pool" "no pool can be called ${path@Q}" create "$path"
	done
	fails 1 "path is too long" "a part of 256 bytes" create "/$(part 256)"
	fails 1 "path is too long" "a path of 5000 bytes" create "$(for _ in $(seq 100); do
		echo -n "/$(part 49)"; done)"
	fails 1 "is no path" "tree of no path" tree tenants
	fails 1 "is no path" "get of no path" get tenants memory.max
	fails 1 "is no path" "set of no path" set tenants memory.max=1M
	fails 1 "is no path" "remove of no path" remove tenants
	fails 1 "is no path" "remove --recursive of no path" remove --recursive tenants/
	fails 1 "is no path" "run in no path" run tenants 1K -- true
	fails 1 "is no path" "clients of no path" clients tenants
	fails 1 "is no path" "drain of no path" drain tenants
	fails 1 "is no path" "flush of no path" flush tenants
	fails 1 "is no path" "reload --reset of no path" reload --reset tenants

	works "a pool for names" create /names
	for path in ' ' 'two words' ... .hidden -x '*' 'a=b' "it's" 'back\slash' '"quoted"' '%41' \
		$'\xc3\xbc\xe2\x98\x83' $'bad\xff\xc3utf8' $'c1\xc2\x9bx' "$(part 255)"; do
		works "create ${path@Q}" create "/names/$path"
		prints "get of ${path@Q}" 0 get "/names/$path" memory.current
		ctl get /names pool.children
		grep -aqxF -- "$path" "$work/out"
		report $? "${path@Q} is among the children"
	done
	works "tree of odd names" tree /names
	ctl tree /names
	grep -aqF $'bad\xff\xc3utf8  ' "$work/out"
	report $? "invalid UTF-8 is shown as it is"
	! grep -aq $'\xc2\x9b' "$work/out"
	report $? "an escape sequence in UTF-8 is not"
	json "odd names as JSON" '{"/names/\"quoted\"", "/names/back\\slash", "/names/%41",
		"/names/\u00fc\u2603", "/names/bad\ufffd\ufffdutf8"} <= {p["path"] for p in j}' tree /names
	LC_ALL=C.UTF-8 ctl tree /names
	grep -qF $'\xe2\x94\x94\xe2\x94\x80 ' "$work/out"
	report $? "lines are drawn where the locale has them"
	[ "$(grep -av 'bad\|c1' "$work/out" | print_widths | sort -u | wc -l)" -eq 1 ]
	report $? "columns are aligned"
	works "remove --recursive of odd names" remove --recursive /names
	fails 1 "/names: no such pool" "they are gone" get /names memory.current

	path=
	for _ in $(seq 15); do
		path=$path/$(part 255 d)
		ctl create "$path"
	done
	works "a path of 4095 bytes" create "$path/$(part 254 e)"
	fails 1 "path is too long" "a path of 4096 bytes" create "$path/$(part 255 f)"
	works "tree of it" tree
	json "tree of it as JSON" 'max(len(p["path"]) for p in j) == 4095' tree
	works "remove --recursive of it" remove "/$(part 255 d)" --recursive
}

test_pools() {
	works "create" create /p
	fails 1 "/p: the pool is there already" "create twice" create /p
	fails 1 "is there already" "create of the root" create /
	fails 1 "/q/r: there is no pool /q .*'tallyctl create /q'" "create without a parent" \
		create /q/r
	works "create with a value" create /p/a memory.max=1M
	prints "the value is set" 1048576 get /p/a memory.max
	fails 1 "'x' is no value of memory.max" "create with a bad value" create /p/b memory.max=x
	fails 1 "/p/b: no such pool" "then there is no pool" get /p/b memory.max
	fails 1 "no file 'frob'" "create with a bad file" create /p/b frob=1
	fails 1 "/p/b: no such pool" "then there is none either" get /p/b memory.max
	works "a second child" create /p/b
	works "a grandchild" create /p/b/c

	fails 1 "/p: the pool is in use: it has 2 children and 0 .*--recursive" "remove a parent" \
		remove /p
	fails 1 "/none: no such pool" "remove no pool" remove /none
	fails 1 "/none: no such pool" "remove --recursive no pool" remove --recursive /none
	fails 1 "root pool cannot be removed" "remove the root" remove /
	fails 1 "root pool cannot be removed" "remove --recursive the root" remove / --recursive
	works "it harms nobody" get /p/b/c memory.current
	works "remove a leaf" remove /p/b/c
	works "remove --recursive" remove /p --recursive
	works "two levels" create /f
	works "the lower one" create /f/a
	fails 1 "/f: the pool is in use: it has 1 child " "--force does not take children" \
		remove --force /f
	works "remove --recursive --force" remove --recursive --force /f
	fails 1 "/f: no such pool" "both are gone" tree /f
	fails 1 "/p: no such pool" "all are gone" tree /p
}

test_values() {
	local value

	works "a pool for values" create /v memory.max=7M
	while read -r value bytes; do
		works "memory.max=$value" set /v "memory.max=$value"
		prints "it reads $bytes" "$bytes" get /v memory.max
	done <<-'END'
		max max
		0 0
		4096 4096
		64K 65536
		64k 65536
		3M 3145728
		2G 2147483648
		1T 1099511627776
		1P 1125899906842624
		15E 17293822569102704640
		18446744073709551614 18446744073709551614
		0007 7
	END
	works "white space around a value" set /v $'memory.max= \t5M \n'
	prints "it is ignored" 5242880 get /v memory.max
	for value in '' ' ' x -1 +1 1.5M '1 M' 1MB 1KK K 0x10 1e6 MAX max1 '1M 2M' 1,000 =1; do
		fails 1 "/v: .* is no value of memory.max; give bytes" \
			"memory.max=${value@Q} is refused" set /v "memory.max=$value"
	done
	for value in 18446744073709551615 18446744073709551616 16E 16384P 99999999999999999999; do
		fails 1 "/v: '$value' is too large for memory.max" "memory.max=$value is too large" \
			set /v "memory.max=$value"
	done
	fails 1 "is no value" "a value of two lines is told in one" set /v $'memory.max=1\n2'
	prints "the old value stays" 5242880 get /v memory.max
	fails 1 "/v: 'memory.current' cannot be written" "a file to be read" set /v memory.current=1
	fails 1 "'memory.stat' cannot be written" "another" set /v memory.stat=1
	fails 1 "'cgroup.procs' cannot be written" "a third" set /v cgroup.procs=1
	fails 1 "/v: no file 'memory.frob'" "set of no file" set /v memory.frob=1
	fails 1 "no file 'tallyd.reload'" "set of a file of the root" set /v tallyd.reload=1
	fails 1 "/none: no such pool" "set of no pool" set /none memory.max=1
	fails 1 "/v: '.*' is no value of memory.max; give bytes" "a long value" \
		set /v "memory.max=$(part 1000 y)"
	is_cut
	fails 1 "/v: the value '.*' of memory.max is too long; give bytes" "a value of 100000 bytes" \
		set /v "memory.max=$(part 100000 y)"
	is_cut
	fails 1 "/v: '9{64}…' is too large" "a long number" set /v "memory.max=$(part 1000 9)"
	fails 1 "/v: 'x(ü){31}…' is no value" "characters are cut whole" \
		set /v "memory.max=x$(part 40 | sed 's/p/ü/g')"
	fails 1 "/v: 'y{64}' is no value" "64 bytes are shown whole" set /v "memory.max=$(part 64 y)"
	fails 1 "/v: no file '" "a file name of 100000 bytes" get /v "$(part 100000 y)"
	is_cut
	fails 1 "/v: no file '" "set of it" set /v "$(part 100000 y)=1"
	is_cut
	fails 1 "/none: no such pool" "a long value for no pool" \
		set /none "memory.max=$(part 100000 y)"
	fails 1 "/none: no such pool" "a long file name in no pool" get /none "$(part 100000 y)"
	fails 1 "path is too long" "a path of 100000 bytes" get "/$(part 100000)" memory.max
	fails 1 "path is too long" "set of it" set "/$(part 100000)" memory.max=1
	fails 1 "path is too long" "create of it" create "/$(part 100000)"
	fails 2 "BYTES wants digits" "a long number of bytes" run /v "$(part 1000 y)" -- true
	is_cut
	fails 1 "there is no item" "an item of 100000 bytes" run --item "$(part 100000 y)" /v 1 -- true
	is_cut
	works "several values" set /v memory.max=1M memory.max=2M
	prints "the last one holds" 2097152 get /v memory.max
	fails 1 "'x' is no value" "the second is bad" set /v memory.max=3M memory.max=x
	prints "the first one is set" 3145728 get /v memory.max
	ctl remove /v
}

test_vanishing() {
	local writer failed=0

	ctl create /w
	(
		while :; do
			"$TALLYCTL" --socket "$socket" create /w/x
			"$TALLYCTL" --socket "$socket" create /w/x/y
			"$TALLYCTL" --socket "$socket" remove --recursive /w/x
		done >/dev/null 2>&1
	) &
	writer=$!
	holders+=("$writer")
	for _ in $(seq 40); do
		ctl tree /w
		[ $status -eq 0 ] && [ ! -s "$work/err" ] || { failed=1; break; }
	done
	report $failed "tree while pools come and go"
	end_holder $writer
	ctl remove --recursive /w
}

# ------------------------------------------------------------------ charges

# All or nothing, and it is told which pool refused.
test_run_with_several() {
	works "one more pool" create /tenants/c memory.max=1M
	hold /tenants/b 2M /tenants/c 512K
	check "both are charged" soon has /tenants/b memory.current 2097152
	check "with what was asked of each" soon has /tenants/c memory.current 524288
	fails 75 "^tallyctl: /tenants/c: 768K does not fit: memory.max of /tenants/c is 1M, held 512K" \
		"the second refuses" run /tenants/b 1M /tenants/c 768K -- true
	fails 75 "^tallyctl: /tenants/c: 768K does not fit" "and as the first one" \
		run /tenants/c 768K /tenants/b 1M -- true
	prints "the first is left as it was" 2097152 get /tenants/b memory.current
	fails 75 "/tenants/c: 512K does not fit" "the same pool twice" \
		run /tenants/c 512K /tenants/c 512K -- true
	works "the same pool twice, and it fits" run /tenants/c 256K /tenants/c 256K -- true
	fails 1 "/none: no such pool" "run makes no second pool" run /tenants/b 1K /none 1K -- true
	end_holder "$holder"
	check "both end with the process" soon has /tenants memory.current 0
}

test_run_with_timeout() {
	local waiter pids=() i status=0 order

	fails 75 "/tenants/c: 2M does not fit: memory.max of /tenants/c is 1M" \
		"nothing comes free in time" run --timeout 100ms /tenants/c 2M -- true
	fails 9 "does not fit" "with --refused-status" \
		run --timeout 0 --refused-status 9 /tenants/c 2M -- true
	works "what fits does not wait" run --timeout 1h /tenants/c 1M -- true
	hold /tenants/c 1M
	check "a holder" soon has /tenants/c memory.current 1048576
	"$TALLYCTL" --socket "$socket" run --timeout 10min /tenants/b 1M /tenants/c 1M -- true &
	waiter=$!
	check "one waits" soon has_waiter /tenants/c
	prints "and holds nothing meanwhile" 0 get /tenants/b memory.current
	end_holder "$holder"
	wait "$waiter"
	report $? "it gets both when one comes free"

	# Each holds one of the two for a moment and wants the other.
	ctl set /tenants/b memory.max=1M
	for i in 1 2 3 4 5 6; do
		order=(/tenants/b 1M /tenants/c 1M)
		[ $((i % 2)) -eq 0 ] || order=(/tenants/c 1M /tenants/b 1M)
		"$TALLYCTL" --socket "$socket" run --timeout 10min "${order[@]}" -- sleep 0.05 &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || status=$?
	done
	report "$status" "two pools in either order do not wait for each other"
	ctl set /tenants/b memory.max=max
	check "nothing is left" soon has /tenants memory.current 0
}

test_run() {
	local reference first fds

	sleep 3600 &
	reference=$!
	holders+=("$reference")
	hold /tenants/a 3M
	first=$holder
	check "the process is attached under its own pid" soon has_process /tenants/a "$first"
	check "it is COMMAND now" soon grep -q sleep "/proc/$first/comm"
	prints "it holds the charge" 3145728 get /tenants/a memory.current
	prints "so does the parent" 3145728 get /tenants memory.current
	prints "and the root" 3145728 get / memory.current
	fds=$(($(ls "/proc/$first/fd" | wc -l) - $(ls "/proc/$reference/fd" | wc -l)))
	check "one descriptor more than without" [ "$fds" -eq 1 ]
	end_holder "$reference"
	shows "tree shows what is held" 'a  +held +3M .*limit +4M  \[#{15}' tree
	json "tree as JSON, held" 'j[1]["held"] == 3 << 20' tree /tenants
	shows "clients has a header" '^ *SESSION  NAME .* HELD ' clients
	shows "clients shows the session" "^ *[0-9]+  sleep  +$first .* 3M " clients /tenants/a
	json "clients as JSON" "len(j) == 1 and j[0]['pid'] == $first and j[0]['name'] == 'sleep' and
		j[0]['uid'] == $(id -u) and j[0]['held'] == 3 << 20 and
		j[0]['pool'] == '/tenants/a'" clients /tenants/a
	json "clients of a parent are those below it" "[c['pid'] for c in j] == [$first]" clients /
	shows "an age is shown as a duration" ' AGE  +POOL$' clients /tenants/a
	shows "of this session" ' [0-9.]+(ms|s|min [0-9]+s)  +/tenants/a$' clients /tenants/a
	json "and is in microseconds as JSON" "0 <= j[0]['age_usec'] < 3600 * 10 ** 6 and
		'age' not in j[0]" clients /tenants/a
	prints "no client is attached to the parent itself" '' get /tenants pool.clients
	fails 1 "in use: it has 0 children and 1 attached process; end" "remove a pool in use" \
		remove /tenants/a
	fails 1 "/tenants/a: the pool is in use" "remove --recursive above it" \
		remove --recursive /tenants

	fails 75 "/tenants/a: 2M does not fit: memory.max of /tenants/a is 4M, held 3M" \
		"over the limit" run /tenants/a 2M -- true
	fails 9 "does not fit" "--refused-status" run --refused-status 9 /tenants/a 2M -- true
	prints "a refused charge leaves nothing" 3145728 get /tenants/a memory.current
	ctl get /tenants/a memory.events
	grep -q '^max [1-9]' "$work/out"
	report $? "a refusal is counted"
	works "what fits exactly fits" run /tenants/a 1M -- true
	works "a pool beside" create /tenants/b
	ctl set /tenants memory.max=3M
	fails 75 "/tenants/b: 1M does not fit: memory.max of /tenants is 3M" "over the parent's limit" \
		run /tenants/b 1M -- true
	ctl set /tenants memory.max=16M

	works "drain" drain /tenants
	check "no idle credit is left" has_key /tenants/a stock 0
	prints "what is held stays" 3145728 get /tenants/a memory.current
	works "flush" flush /tenants
	fails 1 "/none: no such pool" "drain of no pool" drain /none
	fails 1 "/none: no such pool" "flush of no pool" flush /none

	end_holder "$first"
	check "a killed process gives all back" soon has / memory.current 0
	check "and is attached no more" has /tenants/a cgroup.procs ''
	prints "and is no client any more" '' clients /tenants/a

	hold --item buffers /tenants/b 64k
	check "a charge with an item" soon has_key /tenants/b buffers 65536
	check "it is held too" has_key /tenants/b held 65536
	check "the parent has it" has_key /tenants buffers 65536
	works "a limit of the item" set /tenants stat.buffers.max=96K
	prints "it reads as it was set" 98304 get /tenants stat.buffers.max
	fails 75 "/tenants/b: 64K does not fit: stat.buffers.max of /tenants is 96K, held 64K, idle 0; end" \
		"over the limit of the item" run --item buffers /tenants/b 64K -- true
	works "without the item there is room" run /tenants/b 64K -- true
	fails 1 "'x' is no value of stat.buffers.max" "a bad limit of an item" \
		set /tenants stat.buffers.max=x
	fails 1 "stat.hits.max" "an event has none" set /tenants stat.hits.max=1
	works "no limit of the item" set /tenants stat.buffers.max=max
	end_holder "$holder"
	check "the item goes with the process" soon has_key /tenants buffers 0
	fails 1 "there is no item 'frob'" "an unknown item" run --item frob /tenants/b 1K -- true
	fails 1 "there is no item ''" "an empty item" run --item '' /tenants/b 1K -- true
	fails 1 "'hits' counts events" "an event item" run --item hits /tenants/b 1K -- true

	ctl run /tenants/b 4K -- sh -c 'exit 42'
	[ $status -eq 42 ]
	report $? "the status is that of COMMAND"
	prints "arguments are passed on as they are" 'a b||--|--item|' \
		run /tenants/b 0 -- printf '%s|' 'a b' '' -- --item
	fails 127 "frobnicate: no such command" "no such command" run /tenants/b 1K -- frobnicate
	fails 127 "no such command" "no such file" run /tenants/b 1K -- "$work/none"
	fails 127 "no such command" "an empty command" run /tenants/b 1K -- ''
	fails 126 "tallyd.conf: cannot be run" "a file that is no program" \
		run /tenants/b 1K -- "$work/tallyd.conf"
	check "then nothing is held" soon has /tenants/b memory.current 0
	fails 1 "/none: no such pool" "run makes no pool" run /none 1K -- true
	test_run_with_several
	test_run_with_timeout

	printf '#!/bin/sh\nexec sleep 3600\n' >"$work/my 100% tool"
	chmod +x "$work/my 100% tool"
	"$TALLYCTL" --socket "$socket" run /tenants/b 1K -- "$work/my 100% tool" &
	holder=$!
	holders+=("$holder")
	check "a script is attached" soon has_process /tenants/b "$holder"
	json "its name is decoded" 'j[0]["name"] == "my 100% tool"' clients /tenants/b
	shows "in the table too" 'my 100% tool' clients /tenants/b
	end_holder "$holder"
	cp "$work/my 100% tool" "$work/$(part 100 n)"
	"$TALLYCTL" --socket "$socket" run /tenants/b 1K -- "$work/$(part 100 n)" &
	holder=$!
	holders+=("$holder")
	check "a long name is cut, not refused" soon has_process /tenants/b "$holder"
	end_holder "$holder"
	soon has /tenants/b cgroup.procs ''
	works "then its pool can be removed" remove /tenants/b
}

# What a limit says that was met by what was taken before, and by others in line.
test_run_names_the_limit() {
	local waiter

	works "a pool for two" create /tenants/k memory.max=4M
	works "one of the two" create /tenants/k/a
	fails 75 "^tallyctl: /tenants/k: 3M does not fit: memory.max of /tenants/k is 4M, held 2M, idle 0" \
		"two that do not fit together" run /tenants/k/a 2M /tenants/k 3M -- true
	hold /tenants/k 3M
	check "a holder" soon has /tenants/k memory.current 3145728
	"$TALLYCTL" --socket "$socket" run --timeout 10min /tenants/k 2M -- true 2>"$work/wait.err" &
	waiter=$!
	holders+=("$waiter")
	check "one waits in line" soon has_waiter /tenants/k
	sleep 0.1
	fails 75 "1M does not fit: others wait in line there: memory.max of /tenants/k is 4M, held 3M" \
		"others stand in line" run /tenants/k 1M -- true
	fails 75 "1M does not fit: others wait in line there: memory.max of /tenants/k is 4M" \
		"until the time is over" run --timeout 100ms /tenants/k 1M -- true
	works "its process is evicted" evict "$waiter"
	has_failed "$waiter" "$work/wait.err" '/tenants/k: tallyd at .* has ended this session.*try again'
	report $? "the one that waits says so"
	"$TALLYCTL" --socket "$socket" run --timeout 10min /tenants/k 2M -- true 2>"$work/wait.err" &
	waiter=$!
	holders+=("$waiter")
	check "another one waits" soon has_waiter /tenants/k
	works "the pool is removed by force" remove --recursive --force /tenants/k
	has_failed "$waiter" "$work/wait.err" "/tenants/k: the pool was removed meanwhile; create it with"
	report $? "the one that waits is told that it is gone"
	end_holder "$holder"
	check "nothing is left of it" soon has /tenants memory.current 0
}

# Errors that are none of a path, a value or a right.
test_refusing_files() {
	local i

	fails 1 "/tenants: fewer than 1M bytes came back" "memory.reclaim by its file" \
		set /tenants memory.reclaim=1M
	fails 1 "/tenants: 'pid=4194305' names no client of this pool.*clients /tenants" \
		"pool.evict of nobody" set /tenants pool.evict=pid=4194305
	fails 1 "'x' is no value of pool.evict; give pid=N or session=N" "pool.evict of nothing" \
		set /tenants pool.evict=x
	fails 1 "'07777' is .*pool.mode; give octal permission bits up to 0777" "a mode too large" \
		set /tenants pool.mode=07777
	works "no room below" create /tenants/full cgroup.max.descendants=1
	works "for more than one" create /tenants/full/a
	fails 1 "/full/b: cgroup.max.descendants of /tenants/full is 1, and there are 1; remove" \
		"one more" create /tenants/full/b
	works "no levels below" set /tenants/full cgroup.max.descendants=max cgroup.max.depth=1
	fails 1 "/full/a/b: cgroup.max.depth of /tenants/full is 1; make the pool further up" \
		"one deeper" create /tenants/full/a/b
	ctl remove --recursive /tenants/full

	hold /device 1M
	check "a standalone pool is in use" soon has /device memory.current 1048576
	for i in "" --force; do
		# shellcheck disable=SC2086
		fails 1 "/device: the standalone pool is in use by 1 attached process.*end its clients" \
			"remove $i of it" remove $i /device
		! grep -q -- --force "$work/err"
		report $? "does not tell of --force"
	done
	end_holder "$holder"
}

# ------------------------------------------------------------------ events

# follow ARGUMENT ...: `events` in the background; its pid is in $follower. It is there when its
# first event is: until then one is made again and again.
follow() {
	"$TALLYCTL" --socket "$socket" "$@" >"$work/events.out" 2>"$work/events.err" &
	follower=$!
	holders+=("$follower")
}

refuse_one() {
	"$TALLYCTL" --socket "$socket" run /tenants/ev 2M -- true 2>/dev/null
	sleep 0.02
	grep -q "$1" "$work/events.out"
}

refuse_until_ended() {
	refuse_one '^none$'
	! kill -0 "$1" 2>/dev/null
}

# stops STATUS TEXT COMMAND ...: after the command the follower ends so.
stops() {
	local expected=$1 text=$2

	shift 2
	last=("$@")
	"$@"
	wait "$follower"
	status=$?
	cp "$work/events.err" "$work/err"
	cp "$work/events.out" "$work/out"
	[ $status -eq "$expected" ]
	report $? "$text"
}

test_events() {
	fails 1 "/none: no such pool" "events of no pool" events /none
	fails 2 "" "events of two pools" events / /tenants
	works "a pool to follow" create /tenants/ev memory.max=1M
	follow events /tenants/ev
	check "a refusal is told" soon refuse_one '^/tenants/ev oom [0-9]'
	check "and the hit of the limit" soon grep -q '^/tenants/ev max [0-9]' "$work/events.out"
	stops 0 "SIGTERM ends it well" kill -TERM "$follower"
	check "without a word" test ! -s "$work/events.err"
	if [ -w /dev/full ]; then
		"$TALLYCTL" --socket "$socket" events /tenants/ev >/dev/full 2>"$work/full.err" &
		follower=$!
		holders+=("$follower")
		check "a follower that cannot write ends" soon refuse_until_ended "$follower"
		has_failed "$follower" "$work/full.err" 'cannot write the output: .*; see where it is'
		report $? "and says so"
	else
		skip "a follower that cannot write ends" "no /dev/full"
		skip "and says so" "no /dev/full"
	fi
	follow --json events
	check "the root has it too, as JSON" soon refuse_one '^{"pool":"/","event":"oom","count":[0-9]*}$'
	stops 0 "SIGINT ends it well" kill -INT "$follower"
	follow events /tenants/ev
	check "it follows" soon refuse_one ' oom '
	works "the pool is removed" remove /tenants/ev
	stops 0 "it ends with the pool" true
	check "and says so" grep -qx '/tenants/ev removed 1' "$work/events.out"
}

# ------------------------------------------------------------------ configuration

test_reload() {
	prints "reload without a change" "nothing changed" reload
	write_config 5M
	shows "reload says what changed" '/tenants/a' reload
	prints "the new value holds" 5242880 get /tenants/a memory.max
	write_config 5X
	fails 1 "tallyd\.conf:[0-9]+.*; the old configuration stays" "reload of a bad file" reload
	prints "the old value stays" 5242880 get /tenants/a memory.max
	echo 'frob = 1' >>"$work/tallyd.conf"
	fails 1 "tallyd\.conf" "reload of another bad file" reload
	rm "$work/tallyd.conf"
	fails 1 "tallyd\.conf.*; the old configuration stays" "reload of no file" reload
	write_config 6M
	works "set at run time" set /tenants/a memory.max=2M
	works "reload" reload
	prints "what was set at run time holds" 2097152 get /tenants/a memory.max
	fails 1 "/none: no such pool; 'tallyctl tree' shows" "reload --reset of no pool" \
		reload --reset /none
	fails 1 "/none: no such pool; 'tallyctl tree' shows" "the same by its file" \
		set / 'tallyd.reload= reset  /none '
	fails 1 "'none' is no path of a pool" "reset of no path by its file" \
		set / 'tallyd.reload=reset none'
	fails 1 "/tenants: no file 'tallyd.reload'" "the file is in the root alone" \
		set /tenants 'tallyd.reload=reset /none'
	shows "reload --reset" '/tenants/a' reload --reset /tenants/a
	prints "the file's value holds again" 6291456 get /tenants/a memory.max
	works "a pool with a blank in its name" create '/two words' memory.max=1M
	shows "reload --reset of it" '^/two words.* max$' reload --reset '/two words'
	prints "it is unlimited again" max get '/two words' memory.max
}

test_stopped() {
	works "a pool to follow once more" create /tenants/ev memory.max=1M
	follow events /tenants/ev
	check "it follows" soon refuse_one ' oom '
	kill -KILL $daemon
	wait $daemon 2>/dev/null
	daemon=
	stops 1 "events ends when the daemon is gone" true
	told_one_line && grep -q 'tallyd at .* went away; start it' "$work/err"
	report $? "and says so in one line"
	fails 1 "no tallyd at unix:$socket; start it" "status once the daemon is gone" status
	fails 1 "no tallyd at" "get, too" get / memory.current
	fails 1 "no tallyd at" "and run" run / 1K -- true
}

write_config 4M
start_daemon
test_usage
test_reaching
test_output
test_looking
test_paths
test_pools
test_values
test_vanishing
test_run
test_run_names_the_limit
test_refusing_files
test_events
test_reload
test_stopped
echo "1..$number"
