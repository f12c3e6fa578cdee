// SPDX-License-Identifier: MIT
/*
 * Compare the decisions of the kernel's functions and of the simulator in
 * random states of a run queue, and print how many states differ.
 */
#include "../../hardware/common/sample.h"
#include "../../hardware/common/schedule.h"
#include "rules.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t random_state = 1;

static uint64_t below(uint64_t n)
{
	return splitmix64(&random_state) % n;
}

static int maybe(int n)
{
	return below(3) ? NONE : (int)below((uint64_t)n);
}

static void sample_state(struct state *s)
{
	static const uint64_t WEIGHTS[] = { 1024, 1024, 1024, 820, 335, 3121, 88761, 15 };
	static const uint64_t COSTS[] = { 0, 500000, 5000000 };
	uint64_t base = 1000000000 + below(1000000000);

	*s = (struct state){ .n = 2 + (int)below(TASKS - 1) };
	s->latency_ns = 100000 + below(20000000);
	s->min_granularity_ns = 100000 + below(3000000);
	s->wakeup_granularity_ns = below(4) ? below(4000000) : 0;
	s->nr_latency = (s->latency_ns + s->min_granularity_ns - 1) / s->min_granularity_ns;
	s->migration_cost_ns = COSTS[below(3)];
	for (int i = 0; i < s->n; i++) {
		/* choose from few values, so that tasks often have equal values, as in a real run queue */
		s->vruntime[i] = base + below(8) * below(2000000);
		s->policy[i] = below(5) ? TASK_NORMAL : below(2) ? TASK_BATCH : TASK_IDLE;
		s->weight[i] = s->policy[i] == TASK_IDLE ? 3 : WEIGHTS[below(8)];
	}
	s->curr = below(4) ? (int)below((uint64_t)s->n) : NONE;
	s->next = maybe(s->n);
	s->last = maybe(s->n);
	s->skip = maybe(s->n);
	s->woken = s->curr == 0 ? 1 : 0;
	s->min_vruntime = base + below(4000000) - 2000000;
	s->ran_ns = below(12000000);
	s->sleeper_vruntime = base + below(40000000) - 20000000;
	s->since_ns = below(10000000);
	s->target_runs = below(2);
	s->flips[0] = (unsigned int)below(100);
	s->flips[1] = (unsigned int)below(30);
	s->size = 1 + (unsigned int)below(8);
	/* CFS never sets `next` and `last` to the running task or to a SCHED_IDLE task, so clear such random states. */
	if (s->next != NONE && (s->next == s->curr || s->policy[s->next] == TASK_IDLE))
		s->next = NONE;
	if (s->last != NONE && (s->last == s->curr || s->policy[s->last] == TASK_IDLE))
		s->last = NONE;
}

#define DIFFERS(rule, field)                                                             \
	if (kernel.field != simulator.field && !counts[rule]++)                          \
	fprintf(stderr, "first difference of %s: kernel %lld, simulator %lld\n", #field, \
		(long long)kernel.field, (long long)simulator.field)

int main(int argc, char **argv)
{
	enum {
		PICK,
		COMPARE,
		SLICE,
		TICK,
		PREEMPTS,
		NEXT,
		LAST,
		PLACE,
		MIN_VRUNTIME,
		IS_HOT,
		WAKES_MANY,
		RULES
	};
	static const char *const NAMES[RULES] = { "pick_next_entity",
						  "wakeup_preempt_entity",
						  "sched_slice",
						  "check_preempt_tick",
						  "check_preempt_wakeup",
						  "check_preempt_wakeup: next",
						  "check_preempt_wakeup: last",
						  "place_entity",
						  "update_min_vruntime",
						  "task_hot",
						  "wake_wide" };
	uint64_t counts[RULES] = { 0 }, rounded_ns = 0;
	long states = argc > 1 ? atol(argv[1]) : 10000;

	with_base_slice = argc > 2;
	for (long i = 0; i < states; i++) {
		struct state state;
		struct decisions kernel = { 0 }, simulator = { 0 };

		sample_state(&state);
		decide_as_kernel(&state, &kernel);
		decide_as_simulator(&state, &simulator);
		/*
		 * accept a slice that differs by 0.01 %, because the kernel multiplies by
		 * an inverse weight that is rounded to 32 bits
		 */
		if (simulator.slice - kernel.slice <= 1 + kernel.slice / 10000) {
			if (simulator.slice - kernel.slice > rounded_ns)
				rounded_ns = simulator.slice - kernel.slice;
			simulator.slice = kernel.slice;
		}
		DIFFERS(PICK, pick);
		DIFFERS(COMPARE, compare);
		DIFFERS(SLICE, slice);
		DIFFERS(TICK, tick);
		DIFFERS(PREEMPTS, preempts);
		DIFFERS(NEXT, next);
		DIFFERS(LAST, last);
		DIFFERS(PLACE, place);
		DIFFERS(MIN_VRUNTIME, min_vruntime);
		DIFFERS(IS_HOT, is_hot);
		DIFFERS(WAKES_MANY, wakes_many);
	}
	for (int rule = 0; rule < RULES; rule++)
		printf("%s: %" PRIu64 " of %ld states differ\n", NAMES[rule], counts[rule], states);
	printf("the kernel's rounding shortens a slice by at most %" PRIu64 " ns\n", rounded_ns);
	return 0;
}
