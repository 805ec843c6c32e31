/* SPDX-License-Identifier: MIT */

/*
 * Why charges were refused: the records of the last ones, newest last, each in four lines that say who
 * wanted what, which limit of which pool refused, what was tried before, and who holds most.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"

/* A line of pool.refusals, cut into its values; "" where there is none. Holders stay encoded. */
struct record {
	const char *time_usec, *pid, *wanted, *limit, *held, *idle, *waited_usec, *drained, *asked,
		*reclaimed, *ahead, *at, *file, *name, *pool, *holders;
};

static const struct {
	const char *key;
	size_t offset;
} fields[] = {
#define FIELD(name)                                                                                \
	{                                                                                          \
#name, offsetof(struct record, name)                                               \
	}
	FIELD(time_usec),
	FIELD(pid),
	FIELD(wanted),
	FIELD(limit),
	FIELD(held),
	FIELD(idle),
	FIELD(waited_usec),
	FIELD(drained),
	FIELD(asked),
	FIELD(reclaimed),
	FIELD(ahead),
	FIELD(at),
	FIELD(file),
	FIELD(name),
	FIELD(pool),
	FIELD(holders),
#undef FIELD
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static const char **field(struct record *r, size_t i)
{
	return (const char **)(void *)((char *)r + fields[i].offset);
}

static void split(char *line, struct record *r)
{
	char *word;

	for (size_t i = 0; i < N_FIELDS; i++)
		*field(r, i) = "";
	while ((word = text_next_word(&line))) {
		char *value = strchrnul(word, '=');

		if (*value)
			*value++ = '\0';
		for (size_t i = 0; i < N_FIELDS; i++)
			if (!strcmp(word, fields[i].key))
				*field(r, i) = value;
		if (strcmp(word, "holders") != 0) {
			text_decode(value);
			text_make_safe(value);
		}
	}
}

static uint64_t number(const char *text)
{
	uint64_t n = 0;

	return text_parse_limit(text, &n) < 0 ? 0 : n;
}

#define BYTES(text) output_limit(number(text), (char[OUTPUT_TEXT_MAX]){0})

static void print_time(const char *usec)
{
	time_t seconds = (time_t)(number(usec) / 1000000);
	struct tm tm;
	char buf[64];

	if (!localtime_r(&seconds, &tm) || !strftime(buf, sizeof(buf), "%F %T", &tm))
		snprintf(buf, sizeof(buf), "@%" PRIu64, (uint64_t)seconds);
	fputs(buf, stdout);
}

static void print_limit(const struct record *r)
{
	if (*r->file)
		printf("  %s of %s is %s: held %s, idle %s\n", r->file, r->at, BYTES(r->limit),
			BYTES(r->held), BYTES(r->idle));
	else
		printf("  one attachment holds at most 8T: held %s, idle %s in %s\n",
			BYTES(r->held), BYTES(r->idle), r->at);
	if (number(r->ahead) > 0)
		printf("  others ahead in line wait for %s\n", BYTES(r->ahead));
}

static void print_tried(const struct record *r)
{
	char waited[OUTPUT_TEXT_MAX];

	printf("  tried: drained %s of idle credit, ", BYTES(r->drained));
	if (number(r->asked) > 0)
		printf("asked clients for %s and got %s", BYTES(r->asked), BYTES(r->reclaimed));
	else
		fputs("no client had anything to be asked for", stdout);
	printf("; waited %s\n", output_duration(number(r->waited_usec), waited));
}

/* "BYTES:WHO,…" */
static void print_holders(const char *text)
{
	_cleanup_(freep) char *copy = strdup(text);
	char *rest = copy, *one;
	const char *before = "  largest: ";

	while (rest && *rest && (one = strsep(&rest, ","))) {
		char *who = strchrnul(one, ':');

		if (*who)
			*who++ = '\0';
		text_decode(who);
		text_make_safe(who);
		printf("%s%s %s", before, who, BYTES(one));
		before = ", ";
	}
	if (copy && *copy)
		putchar('\n');
}

static int print_records(const char *path, char *text)
{
	struct record r;
	char *line;

	if (!*text)
		printf("nothing was refused by limits of %s or of pools below it\n", path);
	while ((line = text_next_line(&text))) {
		split(line, &r);
		print_time(r.time_usec);
		printf("  refused %s to %s (pid %s) in %s\n", BYTES(r.wanted), r.name, r.pid,
			r.pool);
		print_limit(&r);
		print_tried(&r);
		print_holders(r.holders);
	}
	return STATUS_DONE;
}

int why_command(struct invocation *inv)
{
	const char *path = inv->n_args ? inv->args[0] : "/";
	_cleanup_(json_decrefp) json_t *json = NULL;
	_cleanup_(freep) char *text = NULL;
	int r = command_open(inv, NULL);

	if (r)
		return r;
	r = tally_get(inv->tally, path, "pool.refusals", TALLY_CACHED, &text);
	if (r < 0)
		return error_get(inv, path, "pool.refusals", r);
	if (!inv->json)
		return print_records(path, text);
	json = output_json_file("pool.refusals", text);
	r = json ? output_json_print(json) : -ENOMEM;
	return r < 0 ? error_plain(inv, inv->command, r) : STATUS_DONE;
}
