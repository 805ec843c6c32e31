#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tallyd as an administrator meets it: starts, stops and reloads, exit statuses, and what it does to
# the directory that it is given. Prints TAP; $TALLYD and $TALLYCTL name the binaries.

# What eval is given is to be expanded there.
# shellcheck disable=SC2016

TALLYD=${TALLYD:-./tallyd}
TALLYCTL=${TALLYCTL:-./tallyctl}
export LC_ALL=C
unset TALLY_ADDRESS NOTIFY_SOCKET RUNTIME_DIRECTORY XDG_RUNTIME_DIR

work=$(mktemp -d "${TMPDIR:-/tmp}/test-daemon.XXXXXX") || exit 1
daemons=()
number=0
status=0

finish() {
	[ ${#daemons[@]} -eq 0 ] || kill -KILL "${daemons[@]}" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

# check TEXT COMMAND ...: one TAP line.
check() {
	local text=$1

	shift
	number=$((number + 1))
	if "$@" >"$work/check.out" 2>&1; then
		echo "ok $number - $text"
	else
		echo "not ok $number - $text"
		sed 's/^/#   /' "$work/check.out" "$work/log" 2>/dev/null
		status=1
	fi
}

# soon COMMAND ...: within a minute.
soon() {
	for _ in $(seq 2400); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.025
	done
	return 1
}

ctl() {
	"$TALLYCTL" --socket "$dir/tallyd.sock" "$@"
}

# start ARGUMENT ...: a daemon in $dir; its pid is in $daemon.
start() {
	"$TALLYD" --config "$work/conf" --runtime-dir "$dir" "$@" 2>"$work/log" &
	daemon=$!
	daemons+=("$daemon")
	soon ctl status
}

# ends STATUS COMMAND ...: the exit status, and exactly one line on stderr.
ends() {
	local wanted=$1 got=0

	shift
	"$@" 2>"$work/err" >/dev/null || got=$?
	cat "$work/err"
	[ "$got" -eq "$wanted" ] && [ "$(wc -l <"$work/err")" -eq 1 ]
}

# stops STATUS: on SIGTERM.
stops() {
	local got=0

	kill -TERM "$daemon"
	wait "$daemon" || got=$?
	[ "$got" -eq "$1" ]
}

logged() {
	grep -q -- "$1" "$work/log"
}

dir=$work/run
printf '[pool a]\npath = /a\nmemory.max = 1M\n' >"$work/conf"

# ------------------------------------------------------------------ starts and stops

check "it starts" start
check "a second one in the same directory ends with 3" \
	ends 3 "$TALLYD" --config "$work/conf" --runtime-dir "$dir"
check "and harms nobody" ctl status
check "SIGTERM stops it with 0" stops 0
check "its socket is gone" test ! -e "$dir/tallyd.sock"
check "so are its exported files" test ! -e "$dir/pools"

for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
	eval "\"\$TALLYD\" --config \"\$work/conf\" --runtime-dir \"\$dir\" 2>\"\$work/log\" $closed &"
	daemon=$!
	daemons+=("$daemon")
	check "it serves with $closed" soon ctl status
	check "and stops as usual" stops 0
done

check "no such parent: 1" ends 1 "$TALLYD" --config "$work/conf" --runtime-dir "$work/no/run"
check "too long a path: 1" \
	ends 1 "$TALLYD" --config "$work/conf" --runtime-dir "$work/$(printf 'x%.0s' {1..120})"
check "which leaves nothing behind" eval '! compgen -G "$work/xxx*"'
mkdir -p "$work/mine/pools"
echo precious >"$work/mine/pools/file"
check "somebody's directory: 1" ends 1 "$TALLYD" --config "$work/conf" --runtime-dir "$work/mine"
check "which is left as it was" grep -q precious "$work/mine/pools/file"
check "an empty name: 2" ends 2 "$TALLYD" --config "$work/conf" --runtime-dir ''
check "an unexpected argument: 2" ends 2 "$TALLYD" now
check "no configuration there: 2" ends 2 "$TALLYD" --config "$work/none" --runtime-dir "$dir"
printf '[pool a]\npath = /a\nmemory.max = much\n' >"$work/bad"
check "a bad one: 2" ends 2 "$TALLYD" --config "$work/bad" --runtime-dir "$dir"
check "so says --check-config" ends 2 "$TALLYD" --config "$work/bad" --check-config
check "with file and line" grep -q "$work/bad:3" "$work/err"
[ ! -w /dev/full ] || check "help that cannot be written: 1" eval '"$TALLYD" --help >/dev/full; [ $? -eq 1 ]'
check "a good one is good" "$TALLYD" --config "$work/conf" --check-config

# ------------------------------------------------------------------ while it runs

check "it starts under a strict umask" eval '(umask 077 && : >"$work/masked") && umask 077 && start'
umask 022
check "exported files are for all to read" \
	soon eval '[ "$(stat -c %a "$dir/pools/a/memory.stat")" = 644 ]'
check "in directories for all to enter" eval '[ "$(stat -c %a "$dir/pools/a")" = 755 ]'
mkdir "$dir/pools/a/foreign"
echo precious >"$dir/pools/a/foreign/file"
check "a pool goes" ctl remove /a
check "and its files" soon test ! -e "$dir/pools/a/memory.stat"
check "but nobody else's" grep -q precious "$dir/pools/a/foreign/file"

printf '[pool a]\npath = /a\nmemory.max = 2M\n\n[pool b]\npath = /b\n' >"$work/conf"
kill -HUP "$daemon"
check "SIGHUP reloads" soon eval '[ "$(ctl get /a memory.max)" = 2097152 ]'
check "and says each change in a line" soon logged 'reload: /b created$'
cp "$work/conf" "$work/good"
printf '[daemon]\nflush_threshold = 500\n[pool a]\npath = /a\nflush_threshold = 4096\n' >"$work/conf"
check "a threshold of a pool is a change" \
	eval 'ctl reload | grep -qx "/a flush_threshold inherited -> 4096"'
check "so is the daemon's" eval 'ctl get / tallyd.reload | grep -qx "flush_threshold auto -> 500"'
cp "$work/good" "$work/conf"
check "without them all is as before" \
	eval 'ctl reload | grep -qx "/a flush_threshold 4096 -> inherited"'
cp "$work/bad" "$work/conf"
kill -HUP "$daemon"
check "a bad file is named with its line" soon logged "the old one stays: $work/conf:3"
check "and the old configuration stays" eval '[ "$(ctl get /a memory.max)" = 2097152 ]'
check "why can be read, with its newline" eval '[ "$(ctl get / tallyd.reload | wc -l)" -eq 1 ]'
check "reset without a pool is refused" eval '! ctl set / tallyd.reload=reset'

# ------------------------------------------------------------------ its directory is taken away

printf '[daemon]\nflush_interval = 100ms\n' >"$work/conf"
kill -HUP "$daemon"
old=$daemon
rm -rf "$dir"
check "that is said" soon logged "was removed or replaced"
cp "$work/log" "$work/old.log"
check "another can start there" start
kill -TERM "$old"
check "the first one ends" eval 'wait "$old"'
check "and leaves the other's socket" ctl status
check "and its files" soon test -e "$dir/pools/memory.stat"
check "which stops too" stops 0

# ------------------------------------------------------------------ the service manager

# A service manager in small: hands over a listening socket and keeps what it is told.
cat >"$work/manager.py" <<'EOF'
import os, socket, sys

path, notes, kind, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(notes + ".sock")
listener = socket.socket(socket.AF_UNIX, getattr(socket, kind))
listener.bind(path)
listener.listen()
child = os.fork()
if child == 0:
    os.dup2(listener.fileno(), 3)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), NOTIFY_SOCKET=notes + ".sock")
    os.execv(command[0], command)
listener.close()
with open(notes + ".pid", "w") as f:
    f.write(str(child))
notify.settimeout(0.1)
while True:
    try:
        said = notify.recv(4096).decode()
        with open(notes, "a") as f:
            f.write(said + "\n")
    except socket.timeout:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            sys.exit(os.waitstatus_to_exitcode(status))
EOF

# activate KIND: with a socket of that kind.
activate() {
	rm -rf "$dir" "$work/notes"*
	mkdir "$dir"
	python3 "$work/manager.py" "$dir/tallyd.sock" "$work/notes" "$1" \
		"$TALLYD" --config "$work/conf" --runtime-dir "$dir" 2>"$work/log" &
	daemon=$!
	daemons+=("$daemon")
}

noted() {
	grep -q -- "$1" "$work/notes"
}

if command -v python3 >/dev/null; then
	activate SOCK_SEQPACKET
	check "a socket that is handed over is served" soon ctl status
	check "READY is told" soon noted '^READY=1'
	check "with a STATUS" noted '^STATUS=.* sessions, .* pools'
	check "SIGHUP" kill -HUP "$(cat "$work/notes.pid")"
	check "RELOADING is told" soon noted '^RELOADING=1'
	check "SIGTERM" kill -TERM "$(cat "$work/notes.pid")"
	check "STOPPING is told" soon noted '^STOPPING=1'
	check "it ends with 0" wait "$daemon"
	check "the socket is the manager's and stays" test -S "$dir/tallyd.sock"
	activate SOCK_STREAM
	check "a socket of another kind: 1" eval 'wait "$daemon"; [ $? -eq 1 ]'
	check "and says what is wanted" logged ListenSequentialPacket
else
	number=$((number + 1))
	echo "ok $number - socket activation # SKIP no python3"
fi

echo "1..$number"
exit "$status"
