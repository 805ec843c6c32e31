/* SPDX-License-Identifier: MIT */

/*
 * tallyctl: looks at the pools of a tallyd and changes them. This file knows the command line
 * alone: which commands and options there are, which go together, and how to say what is wrong with
 * them. What a command does stands in the file of its family.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"

#define DEFAULT_ADDRESS "unix:/run/tallyd/tallyd.sock"

/* Above all characters, so that getopt's optopt tells a long option from a short one. */
enum option_id {
	OPTION_SOCKET = 256,
	OPTION_JSON,
	OPTION_VERSION,
	OPTION_HELP,
	OPTION_DEPTH,
	OPTION_EXACT,
	OPTION_RECURSIVE,
	OPTION_ITEM,
	OPTION_REFUSED_STATUS,
	OPTION_RESET,
	OPTION_SAVE,
	OPTION_FORCE,
	OPTION_TIMEOUT,
	OPTION_PERSISTENT,
};

#define BIT(id) (UINT32_C(1) << ((id)-OPTION_SOCKET))

/* Known by name and refused, because a change that is taken for saved and is not does harm. */
#define OPTIONS_ABSENT (BIT(OPTION_SAVE) | BIT(OPTION_PERSISTENT))

/* Before and behind the command. */
#define OPTIONS_COMMON (BIT(OPTION_SOCKET) | BIT(OPTION_HELP))

static const struct option long_options[] = {
	{"socket", required_argument, NULL, OPTION_SOCKET},
	{"json", no_argument, NULL, OPTION_JSON},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"help", no_argument, NULL, OPTION_HELP},
	{"depth", required_argument, NULL, OPTION_DEPTH},
	{"exact", no_argument, NULL, OPTION_EXACT},
	{"recursive", no_argument, NULL, OPTION_RECURSIVE},
	{"item", required_argument, NULL, OPTION_ITEM},
	{"refused-status", required_argument, NULL, OPTION_REFUSED_STATUS},
	{"reset", required_argument, NULL, OPTION_RESET},
	{"save", no_argument, NULL, OPTION_SAVE},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"persistent", no_argument, NULL, OPTION_PERSISTENT},
	{0},
};

struct command {
	const char *name, *synopsis, *summary, *details;
	int min_args, max_args; /* max_args -1: any number */
	uint32_t options;       /* besides OPTIONS_COMMON */
	bool in_order;          /* options end at the first argument */
	int (*run)(struct invocation *inv);
};

static const struct command commands[] = {
	{"status", "", "version, uptime, sessions, pools, flush and grant figures", NULL, 0, 0,
		BIT(OPTION_JSON), false, show_status},
	{"tree", "[POOL] [--depth N]", "the tree with held, idle, limit and a bar",
		"  --depth N    show N levels below POOL\n", 0, 1,
		BIT(OPTION_JSON) | BIT(OPTION_DEPTH), false, show_tree},
	{"get", "POOL FILE [--exact]", "print a file of a pool",
		"  --exact      flush the subtree first\n", 2, 2,
		BIT(OPTION_JSON) | BIT(OPTION_EXACT), false, show_get},
	{"set", "POOL FILE=VALUE ...", "write files of a pool, in the order given", NULL, 2, -1, 0,
		false, change_set},
	{"create", "POOL [FILE=VALUE ...]", "make a pool, with these values or not at all", NULL, 1,
		-1, 0, false, change_create},
	{"remove", "POOL [--recursive] [--force]", "remove a pool that nobody uses",
		"  --recursive  remove the pools below it first\n"
		"  --force      whoever uses it: what is charged there goes to the parent\n",
		1, 1, BIT(OPTION_RECURSIVE) | BIT(OPTION_FORCE), false, change_remove},
	{"run",
		"[--item NAME] [--timeout T] [--refused-status N] POOL BYTES\n"
		"       [POOL BYTES ...] -- COMMAND ...",
		"charge, then become COMMAND; the charge ends with the process",
		"  --item NAME  count the charges in this item of memory.stat too\n"
		"  --timeout T  wait so long for what does not fit (10s, 500ms, 2min, 1h)\n"
		"  --refused-status N\n"
		"               exit with N, not 75, if the charges do not all fit\n",
		0, -1, BIT(OPTION_ITEM) | BIT(OPTION_REFUSED_STATUS) | BIT(OPTION_TIMEOUT), true,
		run_command},
	{"clients", "[POOL]", "the sessions attached to a pool or below it", NULL, 0, 1,
		BIT(OPTION_JSON), false, show_clients},
	{"events", "[POOL]", "follow the events of a pool and of those below it", NULL, 0, 1,
		BIT(OPTION_JSON), false, events_command},
	{"why", "[POOL]", "the last refusals below a pool, each with what was tried", NULL, 0, 1,
		BIT(OPTION_JSON), false, why_command},
	{"reclaim", "POOL BYTES", "ask clients below a pool to give back, and wait for that", NULL,
		2, 2, 0, false, change_reclaim},
	{"drain", "POOL", "return the idle credit of the subtree now", NULL, 1, 1, 0, false,
		change_drain},
	{"flush", "POOL", "bring the figures of the subtree up to date now", NULL, 1, 1, 0, false,
		change_flush},
	{"evict", "PID", "end the sessions of a process; what they hold goes back", NULL, 1, 1, 0,
		false, change_evict},
	{"reload", "[--reset POOL]", "read the configuration again and say what changed",
		"  --reset POOL drop the values that were set for POOL at run time\n", 0, 0,
		BIT(OPTION_RESET), false, change_reload},
};

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

static void print_help(void)
{
	puts("Usage: tallyctl [--socket PATH] [--json] COMMAND ...\n"
	     "\n"
	     "Looks at the pools of a tallyd and changes them.\n"
	     "\n"
	     "Commands:");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %-9s %s\n", commands[i].name, commands[i].summary);
	puts("\n"
	     "Options:\n"
	     "  --socket PATH  the socket of tallyd, instead of $TALLY_ADDRESS or\n"
	     "                 /run/tallyd/tallyd.sock\n"
	     "  --json         print JSON (status, tree, get, clients, events,\n"
	     "                 why)\n"
	     "  --version      print the version\n"
	     "  --help         print this; behind a COMMAND: how that one is used\n"
	     "\n"
	     "Exit status: 0 done, 1 error, 2 usage, 75 refused by a limit.");
}

static void print_command_help(const struct command *c)
{
	printf("Usage: tallyctl [--socket PATH]%s %s%s%s\n\n%s: %s.\n",
		c->options & BIT(OPTION_JSON) ? " [--json]" : "", c->name, *c->synopsis ? " " : "",
		c->synopsis, c->name, c->summary);
	if (c->details)
		printf("\n%s", c->details);
}

int command_usage(const struct invocation *inv, const char *format, ...)
{
	_cleanup_(freep) char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!text)
		return error_line(STATUS_USAGE, "out of memory");
	if (!inv->command)
		return error_line(STATUS_USAGE, "%s; see 'tallyctl --help'", text);
	return error_line(
		STATUS_USAGE, "%s: %s; see 'tallyctl %s --help'", inv->command, text, inv->command);
}

int command_open(struct invocation *inv, const char *name)
{
	struct tally_options options = {.address = inv->address, .name = name};
	int r;

	if (!strcmp(inv->address, "embedded:"))
		return error_line(STATUS_ERROR,
			"embedded: is the engine inside a program, which nobody else can ask; "
			"name the socket of a tallyd with --socket");
	r = tally_open_with(&options, sizeof(options), &inv->tally);
	return r < 0 ? error_open(inv->address, r) : STATUS_DONE;
}

static int set_address(struct invocation *inv, const char *path)
{
	static const char scheme[] = "unix:";
	char *address;

	if (!strncmp(path, scheme, strlen(scheme)))
		path += strlen(scheme);
	if (!*path)
		return command_usage(inv, "--socket needs the path of a socket");
	if (asprintf(&address, "unix:%s", path) < 0)
		return error_line(STATUS_ERROR, "out of memory");
	free(inv->address);
	inv->address = address;
	return STATUS_DONE;
}

static int store_option(struct invocation *inv, int id)
{
	switch (id) {
	case OPTION_SOCKET:
		return set_address(inv, optarg);
	case OPTION_JSON:
		inv->json = true;
		break;
	case OPTION_DEPTH:
		inv->depth = optarg;
		break;
	case OPTION_EXACT:
		inv->exact = true;
		break;
	case OPTION_RECURSIVE:
		inv->recursive = true;
		break;
	case OPTION_FORCE:
		inv->force = true;
		break;
	case OPTION_ITEM:
		inv->item = optarg;
		break;
	case OPTION_REFUSED_STATUS:
		inv->refused_status = optarg;
		break;
	case OPTION_TIMEOUT:
		inv->timeout = optarg;
		break;
	case OPTION_RESET:
		inv->reset = optarg;
		break;
	}
	return STATUS_DONE;
}

static const char *option_name(int id)
{
	const struct option *o = long_options;

	while (o->name && o->val != id)
		o++;
	return o->name;
}

/* What getopt_long() did not take; argv[optind - 1] is the offender unless it is one letter of
 * many. */
static int tell_bad_option(const struct invocation *inv, int id, char **argv)
{
	if (id == ':')
		return command_usage(inv, "option '%s' needs an argument", argv[optind - 1]);
	if (optopt >= OPTION_SOCKET)
		return command_usage(inv, "option '--%s' takes no argument", option_name(optopt));
	if (optopt)
		return command_usage(inv, "unknown option '-%c'", optopt);
	return command_usage(inv, "unknown option '%s'", ERROR_CUT(argv[optind - 1]));
}

/*
 * Takes the options in `allowed` and leaves optind at the first argument. Stops at --help and
 * --version with *ret_stop set.
 */
static int parse_options(struct invocation *inv, int argc, char **argv, uint32_t allowed,
	bool in_order, int *ret_stop)
{
	int id, r;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((id = getopt_long(argc, argv, in_order ? "+:" : ":", long_options, NULL)) != -1) {
		if (id == '?' || id == ':')
			return tell_bad_option(inv, id, argv);
		if (BIT(id) & OPTIONS_ABSENT)
			return command_usage(
				inv, "--%s is not available in this version", option_name(id));
		if (!(BIT(id) & allowed))
			return command_usage(inv, "option '--%s' does not go with %s",
				option_name(id), inv->command ? "this command" : "tallyctl itself");
		if (id == OPTION_HELP || id == OPTION_VERSION) {
			*ret_stop = id;
			return STATUS_DONE;
		}
		r = store_option(inv, id);
		if (r)
			return r;
	}
	return STATUS_DONE;
}

static int run(struct invocation *inv, const struct command *c, int argc, char **argv)
{
	int r, stop = 0;

	inv->command = c->name;
	r = parse_options(inv, argc, argv, c->options | OPTIONS_COMMON, c->in_order, &stop);
	if (r)
		return r;
	if (stop) {
		print_command_help(c);
		return STATUS_DONE;
	}
	if (inv->json && !(c->options & BIT(OPTION_JSON)))
		return command_usage(inv, "--json does not go with this command");
	inv->args = argv + optind;
	inv->n_args = argc - optind;
	if (inv->n_args < c->min_args)
		return command_usage(inv, "too few arguments, wants %s", c->synopsis);
	if (c->max_args >= 0 && inv->n_args > c->max_args)
		return command_usage(
			inv, "superfluous argument '%s'", ERROR_CUT(inv->args[c->max_args]));
	return c->run(inv);
}

static int parse_and_run(struct invocation *inv, int argc, char **argv)
{
	uint32_t allowed = OPTIONS_COMMON | BIT(OPTION_JSON) | BIT(OPTION_VERSION);
	const struct command *c;
	int r, stop = 0;

	r = parse_options(inv, argc, argv, allowed, true, &stop);
	if (r)
		return r;
	if (stop == OPTION_HELP) {
		print_help();
		return STATUS_DONE;
	}
	if (stop == OPTION_VERSION) {
		puts("tallyctl " PACKAGE_VERSION);
		return STATUS_DONE;
	}
	if (optind == argc)
		return command_usage(inv, "no command");
	c = find_command(argv[optind]);
	if (!c)
		return command_usage(inv, "unknown command '%s'", ERROR_CUT(argv[optind]));
	return run(inv, c, argc - optind, argv + optind);
}

/*
 * Takes the numbers of standard streams that are closed, before the socket gets one of them and
 * messages go to the daemon. They are opened the wrong way round, so that using them still fails.
 */
static int reserve_standard_streams(void)
{
	static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) < 0)
			return error_line(STATUS_ERROR,
				"a standard stream is closed and /dev/null cannot be opened: %s",
				strerror(errno));
	return STATUS_DONE;
}

/* Writes out what is left of the output; tells if any of it was lost. */
static int finish_output(void)
{
	int error = output_flush();

	return error < 0 ? error_output(error) : STATUS_DONE;
}

int main(int argc, char **argv)
{
	const char *address = getenv("TALLY_ADDRESS");
	struct invocation inv = {0};
	int status;

	status = reserve_standard_streams();
	if (status)
		return status;
	inv.address = strdup(address && *address ? address : DEFAULT_ADDRESS);
	setlocale(LC_CTYPE, "");
	if (!inv.address)
		return error_line(STATUS_ERROR, "out of memory");
	status = parse_and_run(&inv, argc, argv);
	if (status == STATUS_DONE)
		status = finish_output();
	tally_close(inv.tally);
	free(inv.address);
	return status;
}
