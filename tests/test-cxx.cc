/* SPDX-License-Identifier: MIT */

/*
 * tally.h from C++: that it compiles there with every warning on, that its constants are constants,
 * and that handles and charges fit owners which give back what goes out of scope, exceptions
 * included. Starts a tallyd of its own ($TALLYD, default ./tallyd) and prints TAP.
 */

#include "tally.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace
{

constexpr uint64_t largest = TALLY_BYTES_MAX;

static_assert(largest == (uint64_t(1) << 43) - 1, "a constant expression");
static_assert((TALLY_CREATE & (TALLY_EPHEMERAL | TALLY_PERSIST)) == 0, "flags are distinct");
static_assert((TALLY_EXACT & TALLY_RATELIMITED & TALLY_CACHED) == 0, "flags are distinct");
static_assert((TALLY_NOWAIT & TALLY_FORCE) == 0, "flags are distinct");
static_assert(std::is_standard_layout<tally_options>::value, "passed to C");
static_assert(std::is_trivial<tally_charge_args>::value, "passed to C");
static_assert(std::is_same<decltype(&tally_charge), int (*)(tally_pool *, uint64_t)>::value,
	"a function");

/* ------------------------------------------------------------------ the daemon */

class daemon_process
{
      public:
	daemon_process()
	{
		char name[] = "/tmp/tally-test-XXXXXX";

		if (!mkdtemp(name))
			throw std::runtime_error("mkdtemp");
		dir = name;
		std::ofstream(dir + "/tallyd.conf") << "[daemon]\nexport =\n";
		start();
	}
	daemon_process(const daemon_process &) = delete;
	daemon_process &operator=(const daemon_process &) = delete;
	~daemon_process()
	{
		std::error_code ignored;

		stop();
		std::filesystem::remove_all(dir, ignored);
	}

	std::string address() const
	{
		return "unix:" + dir + "/run/tallyd.sock";
	}

	bool runs()
	{
		if (pid > 0 && waitpid(pid, nullptr, WNOHANG) != 0)
			pid = -1;
		return pid > 0;
	}

	/* Its exit status; -1: it was killed, or has been waited for. */
	int stop()
	{
		int status = -1;

		if (pid <= 0)
			return -1;
		kill(pid, SIGTERM);
		waitpid(pid, &status, 0);
		pid = -1;
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	}

      private:
	void start()
	{
		const char *program = std::getenv("TALLYD");
		std::string config = dir + "/tallyd.conf", run = dir + "/run", log = dir + "/log";

		if (!program)
			program = "./tallyd";
		pid = fork();
		if (pid < 0)
			throw std::runtime_error("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!std::freopen(log.c_str(), "w", stderr))
				_exit(127);
			execlp(program, program, "--config", config.c_str(), "--runtime-dir",
				run.c_str(), static_cast<char *>(nullptr));
			_exit(127);
		}
	}

	std::string dir;
	pid_t pid = -1;
};

/* ------------------------------------------------------------------ owners */

struct closer {
	void operator()(tally *t) const
	{
		tally_close(t);
	}
};

struct detacher {
	void operator()(tally_pool *p) const
	{
		tally_detach(p);
	}
};

struct freer {
	void operator()(char *p) const
	{
		std::free(p);
	}
};

using session = std::unique_ptr<tally, closer>;
using pool = std::unique_ptr<tally_pool, detacher>;
using text = std::unique_ptr<char, freer>;

void check(int r)
{
	if (r == -ENOMEM)
		throw std::bad_alloc();
	if (r < 0)
		throw std::runtime_error(std::strerror(-r));
}

session open_session(daemon_process &d)
{
	tally_options o = {};
	std::string address = d.address();
	tally *t = nullptr;

	o.address = address.c_str();
	o.name = "test-cxx";
	/* it has just been started */
	for (int i = 0; i < 6000 && d.runs(); i++) {
		int r = tally_open_with(&o, sizeof(o), &t);

		if (r != -ENOTCONN) {
			check(r);
			return session(t);
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
	throw std::runtime_error("tallyd does not serve");
}

pool attach(const session &s, const char *path)
{
	tally_pool *p = nullptr;

	check(tally_attach(s.get(), path, TALLY_CREATE, &p));
	return pool(p);
}

uint64_t current(const session &s, const char *path)
{
	char *p = nullptr;

	check(tally_get(s.get(), path, "memory.current", TALLY_EXACT, &p));
	return std::strtoull(text(p).get(), nullptr, 10);
}

/* Bytes that are charged as long as this lives. */
class charge
{
      public:
	charge(const pool &p, uint64_t n) : handle(tally_pool_ref(p.get())), bytes(n)
	{
		int r = tally_charge(handle, bytes);

		if (r < 0)
			tally_pool_unref(handle);
		check(r);
	}
	charge(charge &&other) noexcept : handle(other.handle), bytes(other.bytes)
	{
		other.handle = nullptr;
		other.bytes = 0;
	}
	charge(const charge &) = delete;
	charge &operator=(const charge &) = delete;
	charge &operator=(charge &&) = delete;
	~charge()
	{
		if (handle)
			tally_uncharge(handle, bytes);
		tally_pool_unref(handle);
	}

      private:
	tally_pool *handle;
	uint64_t bytes;
};

/* What a container allocates is charged before it is allocated. */
template <typename T> struct charged_allocator {
	using value_type = T;

	explicit charged_allocator(tally_pool *p) : handle(p)
	{
	}
	template <typename U>
	explicit charged_allocator(const charged_allocator<U> &other) : handle(other.handle)
	{
	}

	T *allocate(size_t n)
	{
		check(tally_charge(handle, n * sizeof(T)));
		try {
			return static_cast<T *>(::operator new(n * sizeof(T)));
		} catch (...) {
			tally_uncharge(handle, n * sizeof(T));
			throw;
		}
	}
	/* Inlined into the library, it makes gcc 12 warn of an order that is not there. */
	[[gnu::noinline]] void deallocate(T *p, size_t n)
	{
		::operator delete(p);
		tally_uncharge(handle, n * sizeof(T));
	}

	bool operator==(const charged_allocator &other) const
	{
		return handle == other.handle;
	}
	bool operator!=(const charged_allocator &other) const
	{
		return handle != other.handle;
	}

	tally_pool *handle;
};

using charged_vector = std::vector<uint64_t, charged_allocator<uint64_t>>;

/* ------------------------------------------------------------------ tests */

int number, failures;

void report(bool ok, const char *what)
{
	std::printf("%sok %d - %s\n", ok ? "" : "not ", ++number, what);
	failures += !ok;
}

void test_scope(const session &s)
{
	pool p = attach(s, "/scope");

	{
		charge a(p, 1000), b(p, 2000);

		report(current(s, "/scope") == 3000, "charges count while they live");
	}
	report(current(s, "/scope") == 0, "and go back with their scope");

	std::vector<charge> many;

	many.reserve(100);
	for (int i = 0; i < 100; i++)
		many.push_back(charge(p, 10));
	report(current(s, "/scope") == 1000, "charges can be moved, and count once");
	many.clear();
	report(current(s, "/scope") == 0, "wherever they have been moved");
}

void test_exception(const session &s)
{
	pool p = attach(s, "/exception");
	bool refused = false;

	check(tally_set(s.get(), "/exception", "memory.max", "1M"));
	try {
		charge a(p, 1 << 19), b(p, 1 << 18), c(p, 1 << 19);
	} catch (const std::bad_alloc &) {
		refused = true;
	}
	report(refused, "a refusal is a std::bad_alloc");
	report(current(s, "/exception") == 0, "and what was charged before it goes back");
}

void test_container(const session &s)
{
	pool p = attach(s, "/container");
	bool refused = false;

	check(tally_set(s.get(), "/container", "memory.max", "1M"));
	{
		charged_vector v{charged_allocator<uint64_t>(p.get())};

		v.reserve(1000);
		report(current(s, "/container") == v.capacity() * sizeof(uint64_t),
			"a container is charged for what it allocates");
		try {
			for (;;)
				v.push_back(v.size());
		} catch (const std::bad_alloc &) {
			refused = true;
		}
		report(refused && v.back() == v.size() - 1, "it is refused at the limit, intact");
		report(current(s, "/container") == v.capacity() * sizeof(uint64_t),
			"and charged for what it has");
	}
	report(current(s, "/container") == 0, "and for nothing when it is gone");
}

void test_arguments(const session &s)
{
	pool p = attach(s, "/arguments");
	tally_charge_args a = {};
	tally_item anon = 0;

	check(tally_item_lookup(s.get(), "anon", &anon));
	a.item = anon;
	a.bytes = 4096;
	check(tally_charge_with(p.get(), &a, sizeof(a)));
	report(current(s, "/arguments") == 4096, "structures can be filled in and passed");
	tally_uncharge_item(p.get(), anon, 4096);
	a.bytes = largest + 1;
	report(tally_charge_with(p.get(), &a, sizeof(a)) == -EINVAL,
		"constants mean what they say");
	report(std::strcmp(tally_pool_path(p.get()), "/arguments") == 0, "strings come back");
}

void run()
{
	daemon_process d;

	{
		session s = open_session(d);

		test_scope(s);
		test_exception(s);
		test_container(s);
		test_arguments(s);
		{
			pool p = attach(s, "/owner");
			charge outlives(p, 5000);

			p.reset();
			report(current(s, "/owner") == 0, "a pool that is let go gives all back");
		}
	}
	report(d.stop() == 0, "tallyd stops");
}

} /* namespace */

int main()
{
	try {
		run();
	} catch (const std::exception &e) {
		report(false, e.what());
	}
	std::printf("1..%d\n", number);
	return failures ? 1 : 0;
}
