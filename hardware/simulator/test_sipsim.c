// SPDX-License-Identifier: MIT
/*
 * Tests of the schedulers' rules. Some tests compare with schedules that were computed by hand. Other tests check properties.
 *
 * A script lists which worker wakes when, and with how much work. A timeline lists which worker runs from which time in ms:
 * "0:A 2:B 12:-" means that A runs from 0, B from 2, and no worker from 12 ms. With several CPUs, "0:A/1" means A on CPU 1.
 * All costs are 0. In the comments, v is the virtual runtime of a worker, d its virtual deadline, and V the average virtual
 * runtime. EEVDF regards a worker as eligible if its v is at most V.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include "output.h"
#include "sched.h"

#define MS        1000000ULL
#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static int failures;

static void check(bool good, const char *what, const char *format, ...)
{
	va_list arguments;

	if (good)
		return;
	failures++;
	fprintf(stderr, "%s: ", what);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static struct model plain(enum rules rules, uint32_t cores, uint32_t workers)
{
	struct model m = {
		.rate_cps = 1,
		.calls = 1,
		.t1_ns = 500 * MS,
		.t2_ns = 4000 * MS,
		.cores = cores,
		.cores_per_processor = cores,
		.tick_ns = MS,
		.workers = workers,
		.receive_step = 1,
		.peers = 1,
		.sockets = 1,
		.instances = 1,
		.spin_ns = 1,
		.yield_ns = 1,
		.rules = rules,
		.release = rules == RULES_CFS ? RELEASE_5_10 : RELEASE_6_1,
		.placement = true,
		.slice_ns = 2 * MS,
		.base_slice_ns = 700000,
		.place_lag = true,
		.run_to_parity = true,
		.preempt_short = true,
		.delay_dequeue = true,
		.latency_ns = 6 * MS,
		.min_granularity_ns = 750000,
		.wakeup_granularity_ns = MS,
		.nr_latency = 8,
		.events_max = 10000000,
	};

	return m;
}

static void write_switch(struct sim *sim, const struct cpu *cpu, const struct worker *next)
{
	char *text = sim->observer;
	size_t at = strlen(text);

	at += (size_t)sprintf(text + at, "%s%g:%c", at ? " " : "", (double)sim->now / (double)MS,
			      next ? (char)('A' + next->id) : '-');
	if (sim->model.cores > 1)
		sprintf(text + at, "/%" PRIu32, cpu->id);
}

/*
 * Run a script, and check that the workers begin to run at the times of `timeline` in ms. `slices` has the slice of
 * each worker in ms. `slices` and `plan` may be NULL.
 */
static void expect(const char *what, const struct model *m, const double *slices, const struct plan *plan,
		   const struct script *script, size_t length, const char *timeline)
{
	char found[4096] = "";
	struct sim sim = { .script = script,
			   .script_length = (uint32_t)length,
			   .switches = { .plan = plan },
			   .switched = write_switch,
			   .observer = found };
	const char *wrong = sim_init(&sim, m);

	for (uint32_t i = 0; slices && i < m->workers; i++)
		sim.workers[i].slice = (int64_t)(slices[i] * (double)MS);
	if (!wrong)
		wrong = sim_run(&sim);
	check(!wrong, what, "%s", wrong);
	check(!strcmp(found, timeline), what, "expected %s\n\tfound %s", timeline, found);
	sim_free(&sim);
}

#define EXPECT(what, m, slices, script, timeline) \
	expect(what, m, slices, NULL, script, LENGTH(script), timeline)

static const struct script BOTH[] = { { 0, 0, 6 * MS }, { 0, 1, 6 * MS } };

static void queue(struct sim *sim, struct worker *w, uint32_t cpu)
{
	w->cpu = cpu;
	CFS.enqueue(sim, &sim->cpus[cpu], w, false);
}

static void test_eevdf_slices(void)
{
	struct model m = plain(RULES_EEVDF, 1, 2);

	/*
	 * Slices are 2 ms. B waits for A's deadline. At 2 ms v_A = 2 and V = 1, so A is not eligible. At 4 ms both
	 * have v = 2 and d = 4, and the waiting worker is chosen. At 10 ms A ends with v = 6 > V = 5. A stays queued
	 * and delayed, until B ends at 12 ms.
	 */
	EXPECT("slices", &m, NULL, BOTH, "0:A 2:B 4:A 6:B 8:A 10:B 12:-");
	/*
	 * Without RUN_TO_PARITY the base slice of 0.7 ms protects a worker. At each tick the running worker is
	 * unprotected, and it is either not eligible or has the later deadline.
	 */
	m.run_to_parity = false;
	m.slice_ns = 3 * MS;
	EXPECT("no parity", &m, NULL, BOTH, "0:A 1:B 2:A 3:B 4:A 5:B 6:A 7:B 8:A 9:B 10:A 11:B 12:-");
}

static void test_eevdf_preempt_short(void)
{
	const struct script script[] = { { 0, 0, 5 * MS }, { 1500000, 1, MS } };
	const double slices[] = { 10, 1 };
	struct model m = plain(RULES_EEVDF, 1, 2);

	/* At 1.5 ms, B gets the virtual deadline 2.5. A has the deadline 10 and the longer slice, so B preempts A. */
	EXPECT("preempt short", &m, slices, script, "0:A 1.5:B 2.5:A 6:-");
	/* Without PREEMPT_SHORT, A is protected until its deadline 10. A ends earlier, so B waits until A ends. */
	m.preempt_short = false;
	EXPECT("no preempt short", &m, slices, script, "0:A 5:B 6:-");
	/* A worker of SCHED_BATCH does not preempt another worker, so A keeps its protection. */
	m.preempt_short = true;
	m.policy = POLICY_BATCH;
	EXPECT("batch", &m, slices, script, "0:A 5:B 6:-");
}

static void test_eevdf_parity(void)
{
	const struct script script[] = { { 0, 0, 4 * MS }, { 0, 1, 2 * MS } };
	const double slices[] = { 10, 1 };
	struct model m = plain(RULES_EEVDF, 1, 2);

	m.preempt_short = false;
	/* A was alone when it was picked, so the short slice of B (1 ms) does not end the protection of A at its deadline 10. */
	EXPECT("protection of the first pick", &m, slices, script, "0:A 4:B 6:-");
	m.preempt_short = true;
	/*
	 * B preempts at 0, because V = 0 and d_B = 1 < 10. At 1 ms v_B = 1, d_B = 2 and V = 0.5, so B is not eligible.
	 * A is picked while B with slice 1 is queued, so A is protected until v = 1. At 2 ms v_A = 1, V = 1 and d_B =
	 * 2 < d_A, so B runs. B ends at 3 ms with v = 2 > V = 1.5 and is delayed. At 4 ms A has v = 2 = V, and B's d =
	 * 3 is earlier, so B leaves. A ends at 6 ms.
	 */
	EXPECT("protection by the shortest slice", &m, slices, script, "0:A 0:B 1:A 2:B 3:A 6:-");
}

static void test_eevdf_delayed_dequeue(void)
{
	const struct script script[] = { { 0, 0, 2 * MS }, { 0, 1, 8 * MS }, { 2500000, 0, MS } };
	struct model m = plain(RULES_EEVDF, 1, 2);

	/*
	 * At 2 ms A sleeps with v = 2 > V = 1, and is delayed. Woken at 2.5 ms, A keeps v = 2 and d = 4. At 4 ms v_B
	 * = 2, d_B = 4 and V = 2, so the waiting A runs. At 5 ms v_A = 3 > V = 2.5, so A is delayed again, and leaves
	 * when V has reached 3.5.
	 */
	EXPECT("delayed", &m, NULL, script, "0:A 2:B 4:A 5:B 11:-");
	/*
	 * A leaves at 2 ms with lag -1. At 2.5 ms V = 0.5. With two equal weights the lag counts twice, so v_A = 2.5
	 * and d_A = 4.5. At 4 ms V = 2.25 < 2.5, so B continues. At 5 ms v_B = 3 and V = 2.75, so A runs.
	 */
	m.delay_dequeue = false;
	EXPECT("lag kept", &m, NULL, script, "0:A 2:B 5:A 6:B 11:-");
	/* Without PLACE_LAG, A starts again at v = 0.5. At 4 ms, A runs first, because B has v = 2. */
	m.place_lag = false;
	EXPECT("lag forgotten", &m, NULL, script, "0:A 2:B 4:A 5:B 11:-");
}

static void test_cfs_slices(void)
{
	const struct script three[] = { { 0, 0, 4 * MS }, { 0, 1, 4 * MS }, { 0, 2, 4 * MS } };
	struct model m = plain(RULES_CFS, 1, 3);

	/* A latency of 6 ms gives each of two workers 3 ms. The first tick after 3 ms is at 4 ms. */
	m.workers = 2;
	EXPECT("latency", &m, NULL, BOTH, "0:A 4:B 8:A 10:B 12:-");
	/* Three workers exceed nr_latency, so each worker gets 2 ms. The first tick after these 2 ms is at 3 ms. */
	m.workers = 3;
	m.nr_latency = 2;
	m.min_granularity_ns = 2 * MS;
	EXPECT("min granularity", &m, NULL, three, "0:A 3:B 6:C 9:A 10:B 11:C 12:-");
	/* The slices that the two papers set are shorter than a tick of 4 ms. Only a tick ends a slice, so a worker runs for 4 ms. */
	m.workers = 2;
	m.tick_ns = 4 * MS;
	m.nr_latency = 8;
	m.latency_ns = 800000;
	m.min_granularity_ns = 100000;
	EXPECT("shorter than a tick", &m, NULL, BOTH, "0:A 4:B 8:A 10:B 12:-");
}

static void test_cfs_wakeup(void)
{
	const struct script script[] = { { 0, 0, 20 * MS }, { 5500000, 1, MS } };
	struct model m = plain(RULES_CFS, 1, 2);

	/*
	 * B is placed half a latency before min_vruntime = 5.5, which is 3 ms ahead of A and more than the granularity.
	 */
	EXPECT("wake-up preemption", &m, NULL, script, "0:A 5.5:B 6.5:A 21:-");
	/* The wake-up granularity of 4 ms exceeds 3 ms, so B waits for the tick at which A has run for 3 ms. */
	m.wakeup_granularity_ns = 4 * MS;
	EXPECT("wake-up granularity", &m, NULL, script, "0:A 6:B 7:A 21:-");
	m.wakeup_granularity_ns = 0;
	m.policy = POLICY_BATCH;
	EXPECT("batch", &m, NULL, script, "0:A 6:B 7:A 21:-");
}

static void test_real_time(void)
{
	const struct script script[] = { { 0, 0, 150 * MS }, { 0, 1, 150 * MS } };
	struct model m = plain(RULES_EEVDF, 1, 2);

	m.policy = POLICY_FIFO;
	EXPECT("fifo", &m, NULL, script, "0:A 150:B 300:-");
	m.policy = POLICY_RR;
	EXPECT("rr", &m, NULL, script, "0:A 100:B 200:A 250:B 300:-");
}

static void test_placement(void)
{
	/* A and C start on CPU 0, and B starts on CPU 1. */
	const struct script idle[] = { { 100 * MS, 0, 4 * MS }, { 101 * MS, 2, 4 * MS } };
	const struct script busy[] = { { 100 * MS, 0, 4 * MS },
				       { 100 * MS, 1, MS },
				       { 100 * MS, 2, 4 * MS } };
	const struct script hot[] = { { 100 * MS, 0, 20 * MS },
				      { 100 * MS, 1, 5500000 },
				      { 100 * MS, 2, 20 * MS } };
	enum rules both[] = { RULES_EEVDF, RULES_CFS };

	for (size_t i = 0; i < LENGTH(both); i++) {
		struct model m = plain(both[i], 2, 3);

		EXPECT("idle sibling", &m, NULL, idle, "100:A/0 101:C/1 104:-/0 105:-/1");
		EXPECT("newly idle", &m, NULL, busy, "100:A/0 100:B/1 101:C/1 104:-/0 105:-/1");
		m.policy = POLICY_FIFO;
		EXPECT("real-time pull", &m, NULL, busy, "100:A/0 100:B/1 101:C/1 104:-/0 105:-/1");
		m.policy = POLICY_OTHER;
		m.placement = false;
		m.slice_ns = 100 * MS;
		m.latency_ns = 200 * MS;
		EXPECT("no placement", &m, NULL, busy, "100:A/0 100:B/1 101:-/1 104:C/0 108:-/0");
	}
	/*
	 * CFS with slices of 3 ms. At 105.5 ms C runs on CPU 0, and A has not run for 1.5 ms. Without a migration cost,
	 * CPU 1 takes A at once. With a migration cost of 5 ms, the caches of CPU 0 count as warm for A at 105.5 ms, and
	 * also at the ticks of 106 and 108 ms, when CPU 1 balances (at intervals of 2 ms for two CPUs). After two
	 * failures, CPU 1 takes the waiting worker at 110 ms, even with a warm cache. This worker is C.
	 */
	{
		struct model m = plain(RULES_CFS, 2, 3);

		EXPECT("no migration cost", &m, NULL, hot,
		       "100:A/0 100:B/1 104:C/0 105.5:A/1 121.5:-/1 124:-/0");
		m.migration_cost_ns = 5 * MS;
		EXPECT("migration cost", &m, NULL, hot,
		       "100:A/0 100:B/1 104:C/0 105.5:-/1 108:A/0 110:C/1 124:-/0 126:-/1");
	}
}

/* Run a script while the model changes from `before` to `after` at `at_ms`. */
static void expect_switch(const char *what, const struct model *before, const struct model *after,
			  double at_ms, const struct script *script, size_t length, const char *timeline)
{
	struct plan_window windows[] = { { 0, 0 }, { (uint64_t)(at_ms * (double)MS), 1 } };
	struct plan plan = { .modes = { *before, *after },
			     .n_modes = 2,
			     .windows = windows,
			     .n_windows = 2,
			     .end_ns = 20 * MS,
			     .sample_ns = 700000 };

	expect(what, before, NULL, &plan, script, length, timeline);
}

static void test_switches_eevdf(void)
{
	struct model m = plain(RULES_EEVDF, 1, 2), other = m;

	/* B runs at the switch to FIFO and continues to its end, because B is the first worker of its priority. */
	other.policy = POLICY_FIFO;
	expect_switch("to FIFO", &m, &other, 3, BOTH, LENGTH(BOTH), "0:A 2:B 8:A 12:-");
	/*
	 * A and B are placed at V. A runs, and is protected for a slice. At 5 ms A has v = 2 > V, so B runs. At 7 ms
	 * both have v = 2, so the waiting A runs its last 1 ms, and then B runs its last 4 ms.
	 */
	expect_switch("from FIFO", &other, &m, 3, BOTH, LENGTH(BOTH), "0:A 5:B 7:A 8:B 12:-");
	/* After the change to slices of 4 ms, the deadline of B is still 2 ms. Only slices that begin later last 4 ms. */
	other = m;
	other.slice_ns = 4 * MS;
	expect_switch("longer slices", &m, &other, 1, BOTH, LENGTH(BOTH), "0:A 2:B 4:A 8:B 12:-");
	/* The switch changes no setting: workers leave the queue and return to the same position. */
	expect_switch("sham", &m, &m, 3.3, BOTH, LENGTH(BOTH), "0:A 2:B 4:A 6:B 8:A 10:B 12:-");
}

static void test_switches_cfs(void)
{
	const struct script script[] = { { 0, 0, 20 * MS }, { 5500000, 1, MS } };
	struct model m = plain(RULES_CFS, 1, 2), other = m;

	/* The load is the same as in test_cfs_wakeup(), and the mode changes at 3 ms. */
	other.policy = POLICY_BATCH;
	expect_switch("CFS to BATCH", &m, &other, 3, script, LENGTH(script), "0:A 6:B 7:A 21:-");
	other = m;
	other.wakeup_granularity_ns = 4 * MS;
	expect_switch("wake-up granularity from 3 ms on", &m, &other, 3, script, LENGTH(script),
		      "0:A 6:B 7:A 21:-");
	expect_switch("CFS sham", &m, &m, 3, script, LENGTH(script), "0:A 5.5:B 6.5:A 21:-");
	/* Under RR, A keeps running because its time slice is 100 ms. B is enqueued behind A and waits until A ends. */
	other = m;
	other.policy = POLICY_RR;
	expect_switch("CFS to RR", &m, &other, 3, script, LENGTH(script), "0:A 20:B 21:-");
	/* The switch back to CFS places B half a latency below the vruntime of A, so B preempts A. */
	expect_switch("CFS from RR", &other, &m, 3, script, LENGTH(script), "0:A 5.5:B 6.5:A 21:-");
}

struct shares {
	uint64_t left_idle;
};

static void watch(struct sim *sim, const struct cpu *cpu, const struct worker *next)
{
	struct shares *shares = sim->observer;

	if (!next && (cpu->fair.length || cpu->rt.length))
		shares->left_idle++;
}

/* Check over 10 s that workers get CPU time in proportion to their weights, and that no CPU is idle while a worker waits. */
static void test_long_run(enum rules rules, const char *what)
{
	static const int nices[] = { 0, 5, -3, 0 };
	struct script script[LENGTH(nices)];
	struct model m = plain(rules, 1, LENGTH(nices));
	struct shares shares = { 0 };
	struct sim sim = {
		.script = script, .script_length = LENGTH(nices), .switched = watch, .observer = &shares
	};
	const char *wrong;

	m.tick_ns = 4 * MS;
	for (uint32_t i = 0; i < LENGTH(nices); i++) {
		script[i] = (struct script){ 0, i, (uint64_t)(10000.0 * sched_weight(nices[i])) * MS / 1024 };
	}
	wrong = sim_init(&sim, &m);
	for (uint32_t i = 0; i < LENGTH(nices); i++)
		sim.workers[i].weight = sched_weight(nices[i]);
	if (!wrong)
		wrong = sim_run(&sim);
	check(!wrong, what, "%s", wrong);
	check(!shares.left_idle, what, "idle with work %" PRIu64 " times", shares.left_idle);
	/*
	 * each worker has work in proportion to its weight, so under an unfair scheduler one worker would be done long
	 * before the others
	 */
	for (uint32_t i = 0; i < LENGTH(nices); i++) {
		double early_ms = (double)(sim.now - sim.workers[i].off_since) / (double)MS;

		check(early_ms < 100.0, what, "worker %" PRIu32 " was done %g ms before the last", i,
		      early_ms);
	}
	check(sim.now == (uint64_t)sim.cpus[0].spent[SPENT_TASK], what, "was idle");
	sim_free(&sim);
}

/* Record the largest lag. EEVDF bounds the lag by the longest request plus one tick (Stoica and Abdel-Wahab 1995). */
static void watch_lag(struct sim *sim, const struct cpu *cpu, const struct worker *next)
{
	int64_t *largest = sim->observer;

	(void)next;
	for (uint32_t i = 0; i < cpu->fair.length; i++) {
		int64_t lag = eevdf_average(cpu) - cpu->fair.queue[i]->vruntime;

		lag = lag < 0 ? -lag : lag;
		if (lag > *largest)
			*largest = lag;
	}
}

static void test_lag(void)
{
	enum {
		N = 400,
		WORKERS = 6
	};
	static struct script script[N];
	struct model m = plain(RULES_EEVDF, 1, WORKERS);
	uint64_t state = 7, free_at[WORKERS] = { 0 }, now = 0;
	int64_t largest = 0;
	struct sim sim = {
		.script = script, .script_length = N, .switched = watch_lag, .observer = &largest
	};
	const char *wrong;

	/* wake each worker only after its earlier work is certainly done, even if all other workers run first */
	for (int i = 0; i < N; i++) {
		uint32_t w = (uint32_t)i % WORKERS;
		uint64_t work = splitmix64(&state) % (5 * MS) + 1;

		now += splitmix64(&state) % (4 * MS);
		if (now < free_at[w])
			now = free_at[w];
		script[i] = (struct script){ now, w, work };
		for (int j = 0; j < WORKERS; j++)
			free_at[j] += work;
		free_at[w] = (free_at[w] > now ? free_at[w] : now) + 40 * MS;
	}
	wrong = sim_init(&sim, &m);
	if (!wrong)
		wrong = sim_run(&sim);
	check(!wrong, "lag", "%s", wrong);
	check(largest > 0 && largest <= (int64_t)(m.slice_ns + m.tick_ns), "lag", "%g ms",
	      (double)largest / (double)MS);
	sim_free(&sim);
}

/* Switch modes while workers run, wait or sleep. Check that the times add up and that every worker does its work. */
static void test_many_switches(enum rules rules, uint32_t cores, const char *what)
{
	enum {
		N = 600,
		WORKERS = 6,
		WINDOWS = 500
	};
	static struct script script[N];
	static struct plan_window windows[WINDOWS];
	static struct plan plan;
	struct model m = plain(rules, cores, WORKERS);
	struct shares shares = { 0 };
	struct sim sim = { .script = script,
			   .script_length = N,
			   .switches = { .plan = &plan },
			   .switched = watch,
			   .observer = &shares };
	uint64_t state = 11, now = 0, work = 0, ran = 0;
	const char *wrong;

	plan = (struct plan){ .n_modes = 6, .windows = windows, .n_windows = WINDOWS, .sample_ns = 5 * MS };
	m.switch_ns = 1500;
	plan.setattr_ns = 2000;
	for (uint32_t i = 0; i < plan.n_modes; i++)
		plan.modes[i] = m;
	plan.modes[1].policy = POLICY_FIFO;
	plan.modes[2].policy = POLICY_BATCH;
	plan.modes[3].policy = POLICY_RR;
	plan.modes[4].nice = -10;
	plan.modes[5].slice_ns = 100000;
	plan.modes[5].latency_ns = 800000;
	/* wake a worker only while it sleeps, when all its earlier work is done */
	for (int i = 0; i < N; i += WORKERS) {
		uint64_t sum = 0;

		for (uint32_t w = 0; w < WORKERS; w++) {
			script[i + (int)w] =
				(struct script){ now + w * 10000, w, splitmix64(&state) % (3 * MS) + 1 };
			sum += script[i + (int)w].work_ns;
		}
		work += sum;
		now += sum + MS + splitmix64(&state) % MS;
	}
	for (uint32_t i = 1; i < WINDOWS; i++)
		windows[i] = (struct plan_window){ windows[i - 1].start_ns + MS + splitmix64(&state) % MS,
						   (uint32_t)(splitmix64(&state) % plan.n_modes) };
	plan.end_ns = windows[WINDOWS - 1].start_ns + MS;
	wrong = sim_init(&sim, &m);
	if (!wrong)
		wrong = sim_run(&sim);
	check(!wrong, what, "%s", wrong);
	for (uint32_t i = 0; i < WORKERS; i++)
		ran += sim.workers[i].ran_ns;
	check(ran == work, what, "ran %" PRIu64 " of %" PRIu64 " ns", ran, work);
	check(!shares.left_idle, what, "idle with work %" PRIu64 " times", shares.left_idle);
	check(sim.switches.window == WINDOWS + 1, what, "%" PRIu32 " windows", sim.switches.window);
	sim_free(&sim);
}

/*
 * The kernel's largest average idle time counts the cost of all domains. With a migration cost of 0 it is 2 * 1000 ns, so
 * a newly idle CPU also looks at the other processor, which takes 1000 ns.
 */
static void test_newly_idle_looks_at_other_processors(void)
{
	const struct script script[] = {
		{ 0, 0, 3 * MS }, { 100000, 2, MS }, { 200000, 1, 100000 }, { 1300000, 1, 100000 }
	};
	struct model m = plain(RULES_CFS, 2, 3);

	m.cores_per_processor = 1;
	m.balance_ns = 500;
	EXPECT("newly idle", &m, NULL, script, "0:A/0 0.2:B/1 0.3:-/1 1.3:B/1 1.4:C/1 2.4:-/1 3:-/0");
	/* Up to Linux 5.16, a CPU that is usually idle for less than the migration cost takes no work. */
	m.migration_cost_ns = 5 * MS;
	EXPECT("migration cost", &m, NULL, script, "0:A/0 0.2:B/1 0.3:-/1 1.3:B/1 1.4:-/1 3:C/0 4:-/0");
}

/* Check that a newly idle CPU spends no time on a search on its own processor, if the processor has only one CPU. */
static void test_newly_idle_single_cpu(void)
{
	struct model m = plain(RULES_CFS, 2, 2);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };

	m.cores_per_processor = 1;
	m.balance_ns = 500;
	check(!sim_init(&sim, &m), "single CPU", "init");
	queue(&sim, &sim.workers[0], 0);
	queue(&sim, &sim.workers[1], 0);
	sim.cpus[1].average_idle = 1200;
	check(placement_newidle(&sim, &sim.cpus[1]), "single CPU", "took no worker");
	sim_free(&sim);
}

/* Check that a newly idle CPU takes a worker from another CPU if the workers of the busiest CPU may not move. */
static void test_newly_idle_beside_pinned_workers(void)
{
	struct model m = plain(RULES_CFS, 3, 4);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };

	check(!sim_init(&sim, &m), "pinned", "init");
	for (uint32_t i = 0; i < 4; i++) {
		if (i < 2)
			sim.workers[i].first_cpu = sim.workers[i].cpus = 1;
		queue(&sim, &sim.workers[i], 1 + i / 2);
	}
	check(placement_newidle(&sim, &sim.cpus[0]) && sim.cpus[2].fair.length == 1, "pinned",
	      "took no worker");
	sim_free(&sim);
}

/* Check that a newly idle CPU takes half of the difference between two CPUs, but one worker in Linux 6.1. */
static void test_newly_idle_takes_half(enum release release, uint32_t left)
{
	struct model m = plain(RULES_CFS, 2, 4);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };

	m.release = release;
	check(!sim_init(&sim, &m), "newly idle", "init");
	for (uint32_t i = 0; i < 4; i++)
		queue(&sim, &sim.workers[i], 0);
	check(placement_newidle(&sim, &sim.cpus[1]) && sim.cpus[0].fair.length == left, "newly idle",
	      "%" PRIu32 " workers are left", sim.cpus[0].fair.length);
	sim_free(&sim);
}

/* Check when an idle CPU takes work from another processor at a tick. `online` is the machine's number of online CPUs. */
static void test_balancing_interval(enum release release, uint32_t online, bool numa, uint64_t at_ms)
{
	struct model m = plain(RULES_CFS, 2, 4);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };

	m.release = release;
	m.online = online;
	m.numa = numa;
	m.cores_per_processor = 1;
	check(!sim_init(&sim, &m), "balancing", "init");
	for (uint32_t i = 0; i < 4; i++)
		queue(&sim, &sim.workers[i], 0);
	while (!sched_running(&sim.cpus[1]) && sim.now < 100 * MS) {
		sim.now += MS;
		placement_tick(&sim, &sim.cpus[0]);
	}
	check(sim.now == at_ms * MS && sched_running(&sim.cpus[1]) == 2, "balancing",
	      "%" PRIu32 " workers after %" PRIu64 " ns", sched_running(&sim.cpus[1]), sim.now);
	sim_free(&sim);
}

/*
 * Check to which CPU a softirq on CPU 0 wakes a worker that ran last on CPU 1 of another processor. `flips` is how often
 * the waker has woken different workers, `queued` is the number of runnable workers on CPU 0, and `online` is the number of
 * online CPUs per processor.
 */
static void test_wake_affine(enum release release, uint32_t flips, uint32_t queued, uint32_t online,
			     uint32_t expected)
{
	struct model m = plain(RULES_CFS, 2, 4);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };
	const struct cpu *chosen;

	m.release = release;
	m.cores_per_processor = 1;
	m.online_per_processor = online;
	check(!sim_init(&sim, &m), "affine", "init");
	for (uint32_t i = 1; i <= queued; i++)
		queue(&sim, &sim.workers[i], 0);
	sim.workers[0].cpu = 1;
	sim.workers[0].flips = flips / 10;
	sim.cpus[0].flips = flips;
	chosen = placement_select(&sim, &sim.workers[0], &sim.cpus[0]);
	check(chosen->id == expected, "affine", "CPU %" PRIu32, chosen->id);
	sim_free(&sim);
}

/* Check that a worker keeps its position in the queue when its policy changes but its priority does not. */
static void test_a_change_to_batch_costs_no_place(void)
{
	struct model m = plain(RULES_CFS, 1, 2);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };
	const char *wrong = sim_init(&sim, &m);
	struct worker *waiting;

	check(!wrong, "batch", "%s", wrong);
	sim.workers[0].left_ns = sim.workers[1].left_ns = 6 * MS;
	sched_wake(&sim, &sim.workers[0], NULL);
	sched_wake(&sim, &sim.workers[1], NULL);
	waiting = &sim.workers[sim.cpus[0].curr == &sim.workers[0]];
	sim.now = MS;
	sim.model.policy = POLICY_BATCH;
	sched_set(&sim, waiting);
	check(waiting->vruntime == 0 && sim.cpus[0].fair.min_vruntime == 0, "batch",
	      "vruntime %" PRId64 ", min_vruntime %" PRId64, waiting->vruntime,
	      sim.cpus[0].fair.min_vruntime);
	sim_free(&sim);
}

/* Check that the credit for sleep of a SCHED_IDLE worker is smaller in Linux 6.1 than in Linux 5.10. */
static void test_idle_sleep_credit(enum release release, int64_t credit)
{
	struct model m = plain(RULES_CFS, 1, 1);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };
	struct worker *w;

	m.release = release;
	check(!sim_init(&sim, &m), "sleep credit", "init");
	w = &sim.workers[0];
	w->policy = POLICY_IDLE;
	sim.cpus[0].fair.min_vruntime = 10 * MS;
	CFS.enqueue(&sim, &sim.cpus[0], w, true);
	check(w->vruntime == (int64_t)(10 * MS) - credit, "sleep credit", "vruntime %" PRId64, w->vruntime);
	sim_free(&sim);
}

/* Check that a woken worker moves to a CPU on which a SCHED_IDLE worker was just woken but does not run yet. */
static void test_woken_idle_class(void)
{
	struct model m = plain(RULES_CFS, 2, 3);
	struct sim sim = { .script = BOTH, .script_length = LENGTH(BOTH) };

	check(!sim_init(&sim, &m), "woken SCHED_IDLE", "init");
	queue(&sim, &sim.workers[1], 0);
	sim.workers[2].policy = POLICY_IDLE;
	queue(&sim, &sim.workers[2], 1);
	check(placement_select(&sim, &sim.workers[0], NULL)->id == 1, "woken SCHED_IDLE", "CPU 0");
	sim_free(&sim);
}

/* Check that a woken worker runs at once, although a competitor of SCHED_IDLE computes all the time. */
static void test_idle_class(enum rules rules, const char *what)
{
	const struct script script[] = { { MS, 0, MS }, { 5 * MS, 1, 500000 }, { 5200000, 0, MS } };
	struct model m = plain(rules, 2, 2);
	char found[4096] = "";
	struct sim sim = { .script = script,
			   .script_length = LENGTH(script),
			   .script_end = 8 * MS,
			   .switched = write_switch,
			   .observer = found };
	const char *timeline = "0:C/1 1:A/0 2:-/0 5:B/1 5.2:A/0 5.5:C/1 6.2:-/0", *wrong;

	m.competitors = 1;
	m.competitor_policy[0] = POLICY_IDLE;
	m.competitor_first_cpu[0] = m.competitor_cpus[0] = 1;
	m.competitor_slice_ns = m.slice_ns;
	wrong = sim_init(&sim, &m);
	if (!wrong)
		wrong = sim_run(&sim);
	check(!wrong, what, "%s", wrong);
	check(!strcmp(found, timeline), what, "expected %s\n\tfound %s", timeline, found);
	sim_free(&sim);
}

static void test_fifo_and_heap(void)
{
	struct fifo fifo = { 0 };
	struct heap heap = { 0 };
	struct tree tree;
	uint64_t state = 1, at[11] = { 0 };

	for (uint32_t i = 0; i < 1000; i++) {
		fifo_push(&fifo, (struct timer){ .call = i });
		heap_push(&heap, (struct timer){ .at = splitmix64(&state) % 100, .call = i });
		if (i % 3)
			check(fifo_pop(&fifo).call == i - i / 3 - 1, "fifo", "order at %" PRIu32, i);
	}
	for (struct timer before = { 0 }, timer; heap.length; before = timer) {
		timer = heap_pop(&heap);
		check(timer.at > before.at || (timer.at == before.at && timer.call >= before.call), "heap",
		      "order");
	}
	check(tree_init(&tree, 11), "tree", "memory");
	for (int i = 0; i < 1000; i++) {
		uint32_t source = (uint32_t)(splitmix64(&state) % 11), first = 0;

		at[source] = splitmix64(&state) % 50;
		for (uint32_t j = 0; i == 0 && j < 11; j++)
			tree_set(&tree, j, at[j]);
		tree_set(&tree, source, at[source]);
		for (uint32_t j = 1; j < 11; j++)
			first = at[j] < at[first] ? j : first;
		check(tree_first(&tree) == first, "tree", "expected %" PRIu32 ", found %" PRIu32, first,
		      tree_first(&tree));
	}
	fifo_free(&fifo);
	heap_free(&heap);
	tree_free(&tree);
}

int main(void)
{
	test_fifo_and_heap();
	test_eevdf_slices();
	test_eevdf_preempt_short();
	test_eevdf_parity();
	test_eevdf_delayed_dequeue();
	test_cfs_slices();
	test_cfs_wakeup();
	test_real_time();
	test_placement();
	test_newly_idle_looks_at_other_processors();
	test_newly_idle_single_cpu();
	test_newly_idle_beside_pinned_workers();
	test_newly_idle_takes_half(RELEASE_5_10, 2);
	test_newly_idle_takes_half(RELEASE_6_1, 3);
	/* as many ms as the domain has online CPUs, and in Linux 3.2 1 ms, or 8 ms between NUMA nodes */
	test_balancing_interval(RELEASE_5_10, 0, false, 2);
	test_balancing_interval(RELEASE_5_10, 12, false, 12);
	test_balancing_interval(RELEASE_3_2, 12, false, 1);
	test_balancing_interval(RELEASE_3_2, 12, true, 8);
	/* both CPUs are idle */
	test_wake_affine(RELEASE_5_10, 0, 0, 1, 1);
	test_wake_affine(RELEASE_3_2, 0, 0, 1, 0);
	/* a worker is runnable on CPU 0 and will probably sleep soon */
	test_wake_affine(RELEASE_5_10, 0, 1, 1, 0);
	/* the waker wakes more workers than share its cache, except with many online CPUs or in Linux 3.2 */
	test_wake_affine(RELEASE_5_10, 100, 1, 1, 1);
	test_wake_affine(RELEASE_5_10, 100, 1, 16, 0);
	test_wake_affine(RELEASE_3_2, 100, 1, 1, 0);
	test_a_change_to_batch_costs_no_place();
	test_idle_sleep_credit(RELEASE_5_10, 3 * MS);
	test_idle_sleep_credit(RELEASE_6_1, 375000);
	test_woken_idle_class();
	test_idle_class(RULES_EEVDF, "EEVDF beside SCHED_IDLE");
	test_idle_class(RULES_CFS, "CFS beside SCHED_IDLE");
	test_long_run(RULES_EEVDF, "EEVDF over 10 s");
	test_long_run(RULES_CFS, "CFS over 10 s");
	test_lag();
	test_switches_eevdf();
	test_switches_cfs();
	test_many_switches(RULES_EEVDF, 1, "EEVDF switched");
	test_many_switches(RULES_EEVDF, 3, "EEVDF switched, 3 CPUs");
	test_many_switches(RULES_CFS, 1, "CFS switched");
	test_many_switches(RULES_CFS, 3, "CFS switched, 3 CPUs");
	if (failures)
		fprintf(stderr, "%d checks failed\n", failures);
	return failures != 0;
}
