/* SPDX-License-Identifier: MIT */

/*
 * The hit path asks one subtraction whether a word is the key's and holds enough. That may now and
 * then say no where yes was right (of words no slot ever holds), but a wrong yes would charge one
 * pool's credit to another, or make credit out of nothing. So it is compared with the plain two
 * steps, at every border and in between.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"
#include "core/word.h"

#define KEY_MAX ((UINT32_C(1) << 20) - 1)
#define RANDOM_ROUNDS 1000000

static const uint32_t keys[] = {0, 1, 2, 3, 63, 64, 65, 0x7fffe, 0x7ffff, 0x80000, 0x80001, 0xaaaaa,
	0x55555, KEY_MAX - 2, KEY_MAX - 1, KEY_MAX};

/* What a slot may hold, and what a charge that hits may want. */
static const uint64_t hits[] = {0, 1, 2, 3, 4095, 4096, 4097, (UINT64_C(1) << 29) - 1,
	UINT64_C(1) << 29, (UINT64_C(1) << 29) + 1, WORD_HIT_MAX - 2, WORD_HIT_MAX - 1};

/* What only a reserve holds, or a client that writes what it likes. */
static const uint64_t beyond[] = {UINT64_C(1) << 41, (UINT64_C(1) << 42) + 1, WORD_HIT_MAX,
	WORD_HIT_MAX + 1, WORD_HIT_MAX + 4096, WORD_BYTES_MAX - WORD_HIT_MAX, WORD_BYTES_MAX - 1,
	WORD_BYTES_MAX};

static bool covers(word w, uint32_t key, uint64_t bytes)
{
	return word_allows(w, word_take(bytes), WORD_TAKE_MOST, (uint64_t)key << WORD_KEY_SHIFT);
}

/* Whether the word has room for `bytes` up to `high`. */
static bool fits(word w, uint32_t key, uint64_t bytes, uint64_t high)
{
	return word_allows(w, bytes << 1, high << 1 | 1, (uint64_t)key << WORD_KEY_SHIFT);
}

static bool covers_plainly(word w, uint32_t key, uint64_t bytes)
{
	return word_key(w) == key && word_bytes(w) >= bytes;
}

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Where the three parts lie is what two programs agree on. */
static void test_layout(void **state _unused_)
{
	assert_true(word_make(0, 0, 0) == 0);
	assert_true(word_make(0, 0, 1) == 1);
	assert_true(word_make(0, 1, 0) == 2);
	assert_true(word_make(0, WORD_BYTES_MAX, 1) == (UINT64_C(1) << 44) - 1);
	assert_true(word_make(1, 0, 0) == UINT64_C(1) << 44);
	assert_true(word_make(KEY_MAX, WORD_BYTES_MAX, 1) == UINT64_MAX);
	assert_true(word_make(0x12345, 0x678, 1) == UINT64_C(0x1234500000000cf1));
	assert_int_equal(WORD_KEY_VOID, KEY_MAX);
}

static void test_parts(void **state _unused_)
{
	for (size_t k = 0; k < ELEMENTS(keys); k++)
		for (size_t b = 0; b < ELEMENTS(hits) + ELEMENTS(beyond); b++)
			for (unsigned parity = 0; parity < 2; parity++) {
				uint64_t bytes =
					b < ELEMENTS(hits) ? hits[b] : beyond[b - ELEMENTS(hits)];
				word w = word_make(keys[k], bytes, parity);

				assert_int_equal(word_key(w), keys[k]);
				assert_int_equal(word_bytes(w), bytes);
				assert_int_equal(word_parity(w), parity);
			}
}

/* Every key beside every key, every amount wanted of every amount there. */
static void test_covers_at_borders(void **state _unused_)
{
	for (size_t have = 0; have < ELEMENTS(keys); have++)
		for (size_t want = 0; want < ELEMENTS(keys); want++)
			for (size_t b = 0; b < ELEMENTS(hits); b++)
				for (size_t n = 0; n < ELEMENTS(hits); n++)
					for (unsigned parity = 0; parity < 2; parity++) {
						word w = word_make(keys[have], hits[b], parity);

						assert_int_equal(covers(w, keys[want], hits[n]),
							covers_plainly(w, keys[want], hits[n]));
					}
}

/* All keys, against the neighbours that differ in one bit or by one. */
static void test_covers_every_key(void **state _unused_)
{
	static const uint64_t wanted[] = {0, 1, WORD_HIT_MAX - 1};

	for (uint32_t key = 0; key <= KEY_MAX; key++)
		for (size_t n = 0; n < ELEMENTS(wanted); n++) {
			word w = word_make(key, wanted[n], key & 1);
			word little = word_make(key, wanted[n] - (wanted[n] > 0), 1);

			if (!covers(w, key, wanted[n]))
				fail_msg("key %#x does not cover its own bytes", key);
			if (wanted[n] > 0 && covers(little, key, wanted[n]))
				fail_msg("key %#x covers a byte too many", key);
			if (covers(w, (key + 1) & KEY_MAX, wanted[n]) ||
				covers(w, (key - 1) & KEY_MAX, wanted[n]) ||
				covers(w, key ^ UINT32_C(1) << key % 20, wanted[n]))
				fail_msg("key %#x covers for another", key);
		}
}

static void test_covers_at_random(void **state _unused_)
{
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

	for (unsigned i = 0; i < RANDOM_ROUNDS; i++) {
		word w = next_random(&seed);
		uint32_t key = next_random(&seed) & KEY_MAX;
		uint64_t bytes = next_random(&seed) & (WORD_HIT_MAX - 1);

		/* Half of them the word's own key, a quarter about as many bytes as it has. */
		if (i & 1)
			key = word_key(w);
		if ((i & 3) == 3)
			bytes = (word_bytes(w) + i % 5 - 2) & (WORD_HIT_MAX - 1);
		w &= ~((WORD_BYTES_MAX - (WORD_HIT_MAX - 1)) << 1);
		if (covers(w, key, bytes) != covers_plainly(w, key, bytes))
			fail_msg("word %#jx, key %#x, bytes %ju", (uintmax_t)w, key,
				(uintmax_t)bytes);
	}
}

/* The other direction: what is added, up to every mark. */
static void test_fits_at_borders(void **state _unused_)
{
	for (size_t have = 0; have < ELEMENTS(keys); have++)
		for (size_t want = 0; want < ELEMENTS(keys); want++)
			for (size_t b = 0; b < ELEMENTS(hits); b++)
				for (size_t n = 0; n < ELEMENTS(hits); n++)
					for (size_t h = n; h < ELEMENTS(hits); h++) {
						word w = word_make(keys[have], hits[b], h & 1);

						assert_int_equal(
							fits(w, keys[want], hits[n], hits[h]),
							keys[have] == keys[want] &&
								hits[b] + hits[n] <= hits[h]);
					}
}

/* More bytes than a slot ever has: it may be missed, but is not taken for what it is not. */
static void test_never_a_wrong_yes(void **state _unused_)
{
	uint64_t seed = UINT64_C(0xd1b54a32d192ed03);

	for (size_t have = 0; have < ELEMENTS(keys); have++)
		for (size_t want = 0; want < ELEMENTS(keys); want++)
			for (size_t b = 0; b < ELEMENTS(beyond); b++)
				for (size_t n = 0; n < ELEMENTS(hits); n++)
					for (unsigned parity = 0; parity < 2; parity++) {
						word w = word_make(keys[have], beyond[b], parity);

						assert_true(!covers(w, keys[want], hits[n]) ||
							covers_plainly(w, keys[want], hits[n]));
					}

	for (unsigned i = 0; i < RANDOM_ROUNDS; i++) {
		word w = next_random(&seed) | WORD_HIT_MAX << 1;
		uint32_t key = i & 1 ? word_key(w) : next_random(&seed) & KEY_MAX;
		uint64_t bytes = next_random(&seed) & (WORD_HIT_MAX - 1);

		if (covers(w, key, bytes) && !covers_plainly(w, key, bytes))
			fail_msg("word %#jx, key %#x, bytes %ju", (uintmax_t)w, key,
				(uintmax_t)bytes);
	}
}

/* What follows a yes: the subtraction leaves key and parity alone. */
static void test_subtraction(void **state _unused_)
{
	for (size_t k = 0; k < ELEMENTS(keys); k++)
		for (size_t b = 0; b < ELEMENTS(hits); b++)
			for (size_t n = 0; n <= b; n++)
				for (unsigned parity = 0; parity < 2; parity++) {
					word w = word_make(keys[k], hits[b], parity) -
						(hits[n] << 1);

					assert_true(
						w == word_make(keys[k], hits[b] - hits[n], parity));
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_covers_at_borders),
		cmocka_unit_test(test_covers_every_key),
		cmocka_unit_test(test_covers_at_random),
		cmocka_unit_test(test_fits_at_borders),
		cmocka_unit_test(test_never_a_wrong_yes),
		cmocka_unit_test(test_subtraction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
