/* SPDX-License-Identifier: MIT */

/*
 * tallyd: arguments, signals, exit statuses. What it does is in manager.c and below.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "conf/conf.h"
#include "log.h"
#include "manager.h"
#include "notify.h"
#include "reload.h"

enum {
	EXIT_STOPPED = 0,
	EXIT_FAILED = 1,
	EXIT_BAD_USAGE = 2, /* or configuration */
	EXIT_OWNED = 3,     /* another tallyd owns the directory */
};

static const char help[] =
	"Usage: tallyd [OPTION]...\n"
	"Counts and limits the memory of user-level pools for all processes of this host.\n"
	"\n"
	"  --config FILE      read FILE and FILE.d/*.conf instead of /etc/tallyd/tallyd.conf\n"
	"  --runtime-dir DIR  socket, state and exported files (default: $RUNTIME_DIRECTORY,\n"
	"                     else /run/tallyd as root, else $XDG_RUNTIME_DIR/tallyd)\n"
	"  --check-config     read the configuration, say what is wrong, and exit\n"
	"  --debug            log more\n"
	"  --version\n"
	"  --help\n"
	"\n"
	"Exit status: 0 stopped by SIGTERM or SIGINT, 1 failed, 2 usage or configuration,\n"
	"3 another tallyd owns the directory. See tallyd(8).\n";

struct options {
	const char *config;
	char *runtime_dir;
	bool check_config, debug;
};

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"runtime-dir", required_argument, NULL, 'r'},
		{"check-config", no_argument, NULL, 'k'},
		{"debug", no_argument, NULL, 'd'},
		{"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0)
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case 'r':
			free(o->runtime_dir);
			o->runtime_dir = strdup(optarg);
			break;
		case 'k':
			o->check_config = true;
			break;
		case 'd':
			o->debug = true;
			break;
		case 'v':
			puts("tallyd " PACKAGE_VERSION);
			return fflush(stdout) == 0 ? EXIT_STOPPED : EXIT_FAILED;
		case 'h':
			fputs(help, stdout);
			return fflush(stdout) == 0 ? EXIT_STOPPED : EXIT_FAILED;
		default:
			fprintf(stderr, "tallyd: see 'tallyd --help'\n");
			return EXIT_BAD_USAGE;
		}
	if ((o->config && !*o->config) || (o->runtime_dir && !*o->runtime_dir)) {
		fprintf(stderr,
			"tallyd: a file or directory is wanted, not an empty name; see "
			"'tallyd --help'\n");
		return EXIT_BAD_USAGE;
	}
	if (optind < argc) {
		fprintf(stderr, "tallyd: unexpected argument '%s'; see 'tallyd --help'\n",
			argv[optind]);
		return EXIT_BAD_USAGE;
	}
	return -1;
}

static char *default_runtime_dir(void)
{
	const char *dir = getenv("RUNTIME_DIRECTORY");
	char *ret;

	if (dir && *dir)
		return strndup(dir, strcspn(dir, ":"));
	if (geteuid() == 0)
		return strdup("/run/tallyd");
	dir = getenv("XDG_RUNTIME_DIR");
	if (!dir || !*dir) {
		log_error("XDG_RUNTIME_DIR is not set; name a directory with --runtime-dir");
		return NULL;
	}
	return asprintf(&ret, "%s/tallyd", dir) < 0 ? NULL : ret;
}

static int check_config(const char *config)
{
	_cleanup_(freep) char *error = NULL;
	struct conf *c;
	int r = conf_load(config, "", &c, &error);

	if (r < 0) {
		log_error("%s", error ? error : strerror(-r));
		return EXIT_BAD_USAGE;
	}
	conf_free(c);
	return EXIT_STOPPED;
}

/* A session takes three descriptors. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warning("cannot raise the limit of open files: %m");
}

struct signals {
	struct manager *manager;
	uv_signal_t hangup, terminate, interrupt;
};

static void on_hangup(uv_signal_t *h, int number)
{
	struct signals *s = h->data;

	(void)number;
	notify_reloading();
	reload_run(s->manager);
	notify_ready(s->manager);
}

static void on_stop(uv_signal_t *h, int number)
{
	struct signals *s = h->data;

	(void)number;
	notify_stopping();
	log_info("stopping");
	manager_stop(s->manager);
	uv_close((uv_handle_t *)&s->hangup, NULL);
	uv_close((uv_handle_t *)&s->terminate, NULL);
	uv_close((uv_handle_t *)&s->interrupt, NULL);
}

static void listen_to(struct signals *s, uv_signal_t *h, uv_signal_cb cb, int number)
{
	uv_signal_init(s->manager->loop, h);
	h->data = s;
	uv_signal_start(h, cb, number);
}

static int serve(const struct options *o, const char *runtime_dir)
{
	struct manager_options mo = {.config = o->config, .runtime_dir = runtime_dir};
	struct signals signals = {0};
	uv_loop_t loop;
	int r = notify_listen_fd(&mo.listen_fd);

	if (r < 0)
		return EXIT_FAILED;
	raise_file_limit();
	signal(SIGPIPE, SIG_IGN);
	if (uv_loop_init(&loop) < 0)
		return EXIT_FAILED;
	r = manager_new(&loop, &mo, &signals.manager);
	if (r < 0) {
		uv_loop_close(&loop);
		return r == -EALREADY ? EXIT_OWNED : r == -EINVAL ? EXIT_BAD_USAGE : EXIT_FAILED;
	}
	listen_to(&signals, &signals.hangup, on_hangup, SIGHUP);
	listen_to(&signals, &signals.terminate, on_stop, SIGTERM);
	listen_to(&signals, &signals.interrupt, on_stop, SIGINT);
	log_info("version " PACKAGE_VERSION " serves %s", runtime_dir);
	notify_ready(signals.manager);

	uv_run(&loop, UV_RUN_DEFAULT);
	manager_free(signals.manager);
	uv_loop_close(&loop);
	return EXIT_STOPPED;
}

/* A standard descriptor that is closed would become a socket, and be written to as a terminal. */
static void open_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	close_fd(fd);
}

int main(int argc, char **argv)
{
	struct options o = {0};
	int status;

	open_standard_descriptors();
	/* Exported files are for everyone to read; what is not has its own mode. */
	umask(022);
	status = parse(argc, argv, &o);

	log_open(o.debug);
	if (status < 0 && o.check_config)
		status = check_config(o.config);
	if (status < 0 && !o.runtime_dir)
		o.runtime_dir = default_runtime_dir();
	if (status < 0)
		status = o.runtime_dir ? serve(&o, o.runtime_dir) : EXIT_BAD_USAGE;
	free(o.runtime_dir);
	return status;
}
