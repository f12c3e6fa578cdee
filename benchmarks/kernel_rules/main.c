// SPDX-License-Identifier: MIT
/*
 * Compare the decisions of the kernel's functions and of the simulator in
 * random states of a run queue and of a machine, and print how many states
 * differ.
 */
#include "../../hardware/common/sample.h"
#include "../../hardware/common/schedule.h"
#include "rules.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 1;

static uint64_t below(uint64_t n)
{
	return splitmix64(&random_state) % n;
}

static const uint64_t WEIGHTS[] = { 1024, 1024, 1024, 820, 335, 3121, 88761, 15 };
static const int NICE[] = { 0, 0, 0, 1, 5, -5, -20, 19 };
static const uint64_t COSTS[] = { 0, 500000, 5000000 };

static int maybe(int n)
{
	return below(3) ? NONE : (int)below((uint64_t)n);
}

static void sample_state(struct state *s)
{
	uint64_t base = 1000000000 + below(1000000000);
	int nices[TASKS];

	*s = (struct state){ .n = 2 + (int)below(TASKS - 1) };
	s->latency_ns = 100000 + below(20000000);
	s->min_granularity_ns = 100000 + below(3000000);
	s->wakeup_granularity_ns = below(4) ? below(4000000) : 0;
	s->nr_latency = (s->latency_ns + s->min_granularity_ns - 1) / s->min_granularity_ns;
	s->migration_cost_ns = COSTS[below(3)];
	for (int i = 0; i < s->n; i++) {
		uint64_t nice = below(8);

		/* choose from few values, so that tasks often have equal values, as in a
     * real run queue */
		s->vruntime[i] = base + below(8) * below(2000000);
		s->policy[i] = below(5) ? TASK_NORMAL : below(2) ? TASK_BATCH : TASK_IDLE;
		s->weight[i] = s->policy[i] == TASK_IDLE ? 3 : WEIGHTS[nice];
		nices[i] = NICE[nice];
	}
	s->curr = below(4) ? (int)below((uint64_t)s->n) : NONE;
	s->next = maybe(s->n);
	s->last = maybe(s->n);
	s->skip = maybe(s->n);
	s->woken = s->curr == 0 ? 1 : 0;
	s->min_vruntime = base + below(4000000) - 2000000;
	s->ran_ns = below(12000000);
	s->sleeper_vruntime = base + below(40000000) - 20000000;
	s->sleeper_policy = below(3) ? TASK_NORMAL : TASK_IDLE;
	s->uncharged_ns = below(12000000);
	s->slept_ns = below(30000000);
	s->changed = (int)below((uint64_t)s->n);
	s->new_nice = nices[s->changed];
	s->new_weight = s->weight[s->changed];
	if (below(2)) {
		uint64_t nice = below(8);

		s->new_nice = NICE[nice];
		s->new_weight = WEIGHTS[nice];
	}
	/* sipsched changes no settings of SCHED_IDLE tasks */
	if (s->policy[s->changed] == TASK_IDLE)
		s->changed = NONE;
	s->since_ns = below(10000000);
	s->target_runs = below(2);
	s->flips[0] = (unsigned int)below(100);
	s->flips[1] = (unsigned int)below(30);
	s->size = 1 + (unsigned int)below(8);
	/* CFS never sets `next` and `last` to the running task or to a SCHED_IDLE
   * task, so clear such random states. */
	if (s->next != NONE && (s->next == s->curr || s->policy[s->next] == TASK_IDLE))
		s->next = NONE;
	if (s->last != NONE && (s->last == s->curr || s->policy[s->last] == TASK_IDLE))
		s->last = NONE;
}

/* Sample tasks, and a history in which each task except for task 0 joins the
 * queue of its CPU, and may then run. */
static void sample_tasks(struct machine *m)
{
	bool queued[MACHINE_TASKS] = { false };
	int curr[CPUS];

	for (int i = 0; i < m->cpus; i++)
		curr[i] = NONE;
	for (int i = 0; i < m->n; i++) {
		m->policy[i] = below(3) ? TASK_NORMAL : below(2) ? TASK_BATCH : TASK_IDLE;
		m->weight[i] = m->policy[i] == TASK_IDLE ? 3 : WEIGHTS[below(6)];
		m->since_ns[i] = below(10000000);
		do
			m->cpu[i] = (int)below((uint64_t)m->cpus);
		while (i && m->cpu[i] == m->newly_idle);
		m->n_cpus[i] = m->cpus;
		if (!below(3)) {
			int last = m->cpu[i] + (int)below((uint64_t)(m->cpus - m->cpu[i]));

			m->first_cpu[i] = (int)below((uint64_t)m->cpu[i] + 1);
			m->n_cpus[i] = last - m->first_cpu[i] + 1;
		}
	}
	for (int i = 0; m->n > 1 && i < 2 * MACHINE_TASKS; i++) {
		int left = 2 * MACHINE_TASKS - i, task = 1 + (int)below((uint64_t)m->n - 1);

		/* let every task join its queue before the history ends */
		for (int j = 1; left < MACHINE_TASKS && j < m->n; j++)
			if (!queued[j])
				task = j;
		if (queued[task] && (curr[m->cpu[task]] == task || below(2)))
			continue;
		m->step[m->steps].task = task;
		m->step[m->steps++].runs = queued[task];
		if (queued[task])
			curr[m->cpu[task]] = task;
		queued[task] = true;
	}
}

static void sample_machine(struct machine *m)
{
	*m = (struct machine){ .cpus = 2 + (int)below(CPUS - 1), .n = 1 + (int)below(MACHINE_TASKS) };
	m->shared = 1 + (int)below((uint64_t)m->cpus);
	m->newly_idle = (int)below((uint64_t)m->cpus);
	m->waker = (int)below((uint64_t)m->cpus);
	sample_tasks(m);
	m->flips[0] = (unsigned int)below(40);
	m->flips[1] = (unsigned int)below(10);
	m->decayed_ns[0] = below(500) * JIFFY_NS;
	m->decayed_ns[1] = below(500) * JIFFY_NS;
	m->same_wakee = below(2);
	m->recent_used_cpu = (int)below((uint64_t)m->cpus);
	m->nr_idle_scan = (int)below((uint64_t)m->shared + 1);
	m->wake_avg_idle_ns = below(2000000);
	m->scan_cost_ns = below(1000000);
	m->migration_cost_ns = COSTS[below(3)];
	m->balance_ns = below(4) * below(500000);
	m->average_idle_ns = below(6000000);
	m->idle_ns = below(10000000);
	m->balance_failed = (unsigned int)below(4);
}

struct rule {
	const char *name;
	uint64_t differences;
};
static struct rule rules[32];

static void compare(const char *name, uint64_t kernel, uint64_t simulator)
{
	struct rule *rule = rules;

	while (rule->name && strcmp(rule->name, name))
		rule++;
	rule->name = name;
	if (kernel != simulator && !rule->differences++)
		fprintf(stderr, "first difference of %s: kernel %" PRId64 ", simulator %" PRId64 "\n", name,
			(int64_t)kernel, (int64_t)simulator);
}

/*
 * Compare times after a task ran for uncharged_ns. Accept a difference of 0.01
 * % of the added virtual runtime, because the kernel multiplies by an inverse
 * weight that is rounded to 32 bits.
 */
static void compare_times(const struct state *s, const char *vruntime, const char *min_vruntime,
			  struct times kernel, struct times simulator)
{
	int64_t accepted = s->curr == NONE ? 0 : 1 + s->uncharged_ns * 1024 / s->weight[s->curr] / 10000;

	if (llabs((int64_t)(kernel.vruntime - simulator.vruntime)) <= accepted)
		simulator.vruntime = kernel.vruntime;
	if (llabs((int64_t)(kernel.min_vruntime - simulator.min_vruntime)) <= accepted)
		simulator.min_vruntime = kernel.min_vruntime;
	compare(vruntime, kernel.vruntime, simulator.vruntime);
	compare(min_vruntime, kernel.min_vruntime, simulator.min_vruntime);
}
#define COMPARE_TIMES(name, member) \
	compare_times(&state, name ": vruntime", name ": min_vruntime", kernel.member, simulator.member)

/* Compare the decisions in a state of a run queue. Return by how much the
 * kernel's rounding shortens the slice, in ns. */
static uint64_t compare_queue(void)
{
	struct state state;
	struct decisions kernel = { 0 }, simulator = { 0 };
	uint64_t rounded_ns;

	sample_state(&state);
	decide_as_kernel(&state, &kernel);
	decide_as_simulator(&state, &simulator);
	rounded_ns = simulator.slice - kernel.slice;
	if (rounded_ns <= 1 + kernel.slice / 10000)
		simulator.slice = kernel.slice;
	else
		rounded_ns = 0;
	compare("pick_next_entity", kernel.pick, simulator.pick);
	compare("wakeup_preempt_entity", kernel.compare, simulator.compare);
	compare("sched_slice", kernel.slice, simulator.slice);
	compare("check_preempt_tick", kernel.tick, simulator.tick);
	compare("check_preempt_wakeup", kernel.preempts, simulator.preempts);
	compare("check_preempt_wakeup: next", kernel.next, simulator.next);
	compare("check_preempt_wakeup: last", kernel.last, simulator.last);
	compare("place_entity", kernel.place, simulator.place);
	compare("update_min_vruntime", kernel.min_vruntime, simulator.min_vruntime);
	compare("task_hot", kernel.is_hot, simulator.is_hot);
	compare("wake_wide", kernel.wakes_many, simulator.wakes_many);
	COMPARE_TIMES("dequeue_entity, sleep", sleep);
	COMPARE_TIMES("enqueue_entity, wake-up", wake);
	COMPARE_TIMES("dequeue_entity, migration", move);
	COMPARE_TIMES("dequeue_entity and enqueue_entity, change of settings", change);
	return rounded_ns;
}

static void compare_machine(void)
{
	struct machine machine;
	struct choices kernel = { 0 }, simulator = { 0 };

	sample_machine(&machine);
	choose_as_kernel(&machine, &kernel);
	choose_as_simulator(&machine, &simulator);
	compare("select_task_rq_fair", kernel.cpu[0], simulator.cpu[0]);
	compare("select_task_rq_fair without recent_used_cpu", kernel.cpu[1], simulator.cpu[1]);
	compare("select_task_rq_fair without recent_used_cpu and limit of the scan", kernel.cpu[2],
		simulator.cpu[2]);
	compare("sched_balance_newidle", kernel.taken, simulator.taken);
	compare("sched_balance_newidle: idle_stamp", kernel.is_idle, simulator.is_idle);
	compare("ttwu_do_wakeup: avg_idle", kernel.average_idle_ns, simulator.average_idle_ns);
}

int main(int argc, char **argv)
{
	uint64_t rounded_ns = 0;
	long states = argc > 1 ? atol(argv[1]) : 10000;

	with_base_slice = argc > 2;
	for (long i = 0; i < states; i++) {
		uint64_t ns = compare_queue();

		rounded_ns = ns > rounded_ns ? ns : rounded_ns;
		compare_machine();
	}
	for (const struct rule *rule = rules; rule->name; rule++)
		printf("%s: %" PRIu64 " of %ld states differ\n", rule->name, rule->differences, states);
	printf("the kernel's rounding shortens a slice by at most %" PRIu64 " ns\n", rounded_ns);
	return 0;
}
