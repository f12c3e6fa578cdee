// SPDX-License-Identifier: MIT
/*
 * The programs that use the SPS's CPUs beside the proxy. A periodic competitor computes at the beginning of each
 * period, as ../scheduler/competitor.c does. A competitor without a period computes all the time. The logger has work
 * for each message that a worker begins to serve. If the logger's queue is full, the worker waits until the logger has
 * taken a message. On each CPU, one further program may have bursts of work at random times. The bursts are at the same
 * times in runs with different settings.
 */
#include "sched.h"
#include "sim.h"

#define PIECE_NS 1000000000 /* a competitor without a period computes in pieces of this length */

static bool has_bursts(const struct sim *sim, const struct worker *w)
{
	return sim->bursts && w >= sim->bursts;
}

/* Sample an exponentially distributed time with the mean `mean_ns`, for a program with bursts of work. */
static uint64_t draw_burst(struct sim *sim, const struct worker *w, uint64_t mean_ns)
{
	return (uint64_t)(draw_exponential(&sim->burst_states[w - sim->bursts]) * (double)mean_ns + 0.5);
}

static void set_timer(struct sim *sim, const struct worker *w, uint64_t at)
{
	tree_set(&sim->tree, SOURCE_CPUS + sim->n_cpus + w->id - sim->n_workers, at);
}

void competitors_init(struct sim *sim, uint64_t *state)
{
	const struct model *m = &sim->model;

	for (uint32_t i = 0; i < sim->n_others; i++) {
		struct worker *w = &sim->workers[sim->n_workers + i];
		uint64_t turn = splitmix64(state);

		w->id = w->last_wakee = sim->n_workers + i;
		w->phase = PHASE_COMPETE;
		w->slice = (int64_t)m->competitor_slice_ns;
		w->weight = NICE_0_WEIGHT;
		w->cpus = m->cores;
		if (i < m->competitors) {
			w->policy = m->competitor_policy[i];
			w->weight =
				w->policy == POLICY_IDLE ? IDLE_WEIGHT : sched_weight(m->competitor_nice[i]);
			w->cpu = w->first_cpu = m->competitor_first_cpu[i];
			w->cpus = m->competitor_cpus[i];
			/*
			 * begin at a random time of the first period, so that not all competitors begin their periods
			 * when the calls begin
			 */
			w->begin_ns = m->competitor_period_ns[i] ? turn % m->competitor_period_ns[i] : 0;
		} else if (m->logger_ns && !sim->logger) {
			sim->logger = w;
			if (m->logger_apart) {
				w->cpu = w->first_cpu = m->cores;
				w->cpus = 1;
			}
			continue;
		} else {
			if (!sim->bursts)
				sim->bursts = w;
			w->weight = m->burst_weight;
			w->cpu = w->first_cpu = (uint32_t)(w - sim->bursts);
			w->cpus = 1;
			sim->burst_states[w->cpu] = turn;
			w->begin_ns = draw_burst(sim, w, m->burst_every_ns);
		}
		set_timer(sim, w, w->begin_ns);
	}
}

static uint64_t work_of(struct sim *sim, const struct worker *w)
{
	const struct model *m = &sim->model;
	uint32_t i = w->id - sim->n_workers;

	if (has_bursts(sim, w))
		return draw_burst(sim, w, m->burst_ns);
	return m->competitor_period_ns[i] ? m->competitor_work_ns[i] : PIECE_NS;
}

void competitor_event(struct sim *sim, uint32_t number)
{
	struct worker *w = &sim->workers[sim->n_workers + number];

	set_timer(sim, w, NEVER);
	w->left_ns = work_of(sim, w);
	sched_wake(sim, w, NULL);
	cpu_set(sim, &sim->cpus[w->cpu]);
}

/* Take a message from the logger's queue, and wake the worker that has waited longest for room in the queue. */
static bool log_next(struct sim *sim, struct cpu *cpu)
{
	struct log_queue *queue = &sim->log_queue;
	struct worker *logger = sim->logger;

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

/* Return the time at which a competitor, or a program with bursts, begins its next work. */
static uint64_t next_begin(struct sim *sim, const struct worker *w)
{
	uint64_t period_ns;

	if (has_bursts(sim, w))
		return w->begin_ns + draw_burst(sim, w, sim->model.burst_every_ns);
	period_ns = sim->model.competitor_period_ns[w->id - sim->n_workers];
	return period_ns ? w->begin_ns + (1 + (sim->now - w->begin_ns) / period_ns) * period_ns : sim->now;
}

bool competitor_step(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	if (w == sim->logger)
		return log_next(sim, cpu);
	w->begin_ns = next_begin(sim, w);
	if (w->begin_ns <= sim->now) {
		w->left_ns = work_of(sim, w);
		return true;
	}
	set_timer(sim, w, w->begin_ns);
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
	sender->phase = PHASE_BEFORE;
	sender->left_ns = sender->before_ns;
	/* a logger that runs or waits for a CPU will look into its queue, so only a sleeping logger is woken */
	if (!logger->on_rq || logger->delayed) {
		sched_wake(sim, logger, cpu);
		cpu_set(sim, &sim->cpus[logger->cpu]);
		sched_check(sim, cpu);
	}
	return cpu->curr == sender;
}
