// SPDX-License-Identifier: MIT
/*
 * Other programs on the SPS's CPUs. A periodic competitor computes at the beginning of each period, as
 * ../scheduler/competitor.c does. A competitor without a period computes all the time. The logger has work for each message
 * that a worker has served. If the logger's queue is full, the worker waits until the logger has taken a message.
 */
#include "sched.h"
#include "sim.h"

#define PIECE_NS 1000000000 /* a competitor without a period computes in pieces of this length */

static uint64_t draw(struct sim *sim, uint32_t number, uint64_t mean_ns)
{
	if (!sim->model.competitor_random)
		return mean_ns;
	return (uint64_t)(draw_exponential(&sim->competitor_states[number]) * (double)mean_ns + 0.5);
}

static void set_timer(struct sim *sim, uint32_t number, uint64_t at)
{
	tree_set(&sim->tree, SOURCE_CPUS + sim->model.cores + number, at);
}

void competitor_init(struct sim *sim, uint32_t number)
{
	const struct model *m = &sim->model;
	struct worker *w = &sim->workers[sim->n_workers + number];
	uint64_t *state = &sim->competitor_states[number];

	w->id = w->last_wakee = sim->n_workers + number;
	w->phase = PHASE_COMPETE;
	w->slice = (int64_t)m->competitor_slice_ns;
	if (number == m->competitors) {
		w->weight = NICE_0_WEIGHT;
		w->cpus = m->cores;
		sim->logger = w;
		return;
	}
	w->weight = m->competitor_weight[number];
	w->policy = w->weight == IDLE_WEIGHT ? POLICY_IDLE : POLICY_OTHER;
	w->first_cpu = m->competitor_first_cpu[number];
	w->cpus = m->competitor_cpus[number];
	w->cpu = w->first_cpu;
	/* begin within the first period at random, because the calls begin at 0 */
	w->begin_ns = (uint64_t)((double)(splitmix64(state) >> 11) * 0x1p-53 *
				 (double)m->competitor_period_ns[number]);
	set_timer(sim, number, w->begin_ns);
}

void competitor_event(struct sim *sim, uint32_t number)
{
	struct worker *w = &sim->workers[sim->n_workers + number];

	set_timer(sim, number, NEVER);
	w->left_ns = draw(sim, number, sim->model.competitor_work_ns[number]);
	sched_wake(sim, w, NULL);
	cpu_set(sim, &sim->cpus[w->cpu]);
}

/* Take a message from the logger's queue, and wake the worker that has waited longest for room in the queue. */
static bool log_next(struct sim *sim, struct cpu *cpu, struct worker *logger)
{
	struct log_queue *queue = &sim->log_queue;

	if (!queue->length) {
		sched_sleep(sim, cpu);
		return false;
	}
	queue->length--;
	logger->messages++;
	logger->left_ns = sim->model.logger_ns;
	if (queue->n_blocked) {
		struct worker *sender = queue->blocked[queue->first_blocked];

		queue->first_blocked = (queue->first_blocked + 1) % sim->n_workers;
		queue->n_blocked--;
		sched_wake(sim, sender, cpu);
		cpu_set(sim, &sim->cpus[sender->cpu]);
		sched_check(sim, cpu);
	}
	return cpu->curr == logger;
}

bool competitor_step(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	uint32_t number = w->id - sim->n_workers;
	uint64_t period_ns;

	if (w == sim->logger)
		return log_next(sim, cpu, w);
	period_ns = sim->model.competitor_period_ns[number];
	if (!period_ns) {
		w->left_ns = PIECE_NS;
		return true;
	}
	if (sim->model.competitor_random)
		w->begin_ns += draw(sim, number, period_ns);
	else
		w->begin_ns += (1 + (sim->now - w->begin_ns) / period_ns) * period_ns;
	if (w->begin_ns <= sim->now) {
		w->left_ns = draw(sim, number, sim->model.competitor_work_ns[number]);
		return true;
	}
	set_timer(sim, number, w->begin_ns);
	sched_sleep(sim, cpu);
	return false;
}

bool competitor_log(struct sim *sim, struct cpu *cpu, struct worker *sender)
{
	struct log_queue *queue = &sim->log_queue;
	struct worker *logger = sim->logger;
	uint32_t limit = sim->model.logger_queue;

	if (limit && queue->length >= limit) {
		queue->blocked[(queue->first_blocked + queue->n_blocked++) % sim->n_workers] = sender;
		sched_sleep(sim, cpu);
		return false;
	}
	queue->length++;
	sender->phase = PHASE_LOOP;
	sender->left_ns = sim->model.loop_ns;
	/* a logger that runs or waits for a CPU finds the message by itself */
	if (!logger->on_rq || logger->delayed) {
		sched_wake(sim, logger, cpu);
		cpu_set(sim, &sim->cpus[logger->cpu]);
		sched_check(sim, cpu);
	}
	return cpu->curr == sender;
}
