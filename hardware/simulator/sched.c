// SPDX-License-Identifier: MIT
#include <math.h>
#include <string.h>
#include "sched.h"

/* The kernel's weights per nice value: sched_prio_to_weight[] in kernel/sched/core.c. */
static const uint32_t WEIGHTS[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, /* nice -20 to -11 */
	9548,  7620,  6100,  4904,  3906,  3121,  2501,  1991,  1586,  1277,  /* nice -10 to -1 */
	1024,  820,   655,   526,   423,   335,   272,   215,   172,   137,   /* nice 0 to 9 */
	110,   87,    70,    56,    45,    36,    29,    23,    18,    15,    /* nice 10 to 19 */
};

uint32_t sched_weight(int nice)
{
	return WEIGHTS[nice + 20];
}

bool is_rt(const struct worker *w)
{
	return w->policy == POLICY_FIFO || w->policy == POLICY_RR;
}

const struct fair_class *fair_of(const struct sim *sim)
{
	return sim->model.rules == RULES_EEVDF ? &EEVDF : &CFS;
}

uint32_t sched_running(const struct cpu *cpu)
{
	/* a running real-time worker stays in its queue, so it is already in rt.length */
	bool fair_runs = cpu->curr && !is_rt(cpu->curr) && cpu->curr->on_rq;

	return cpu->fair.length + fair_runs + cpu->rt.length;
}

void fair_add(struct fair_rq *rq, struct worker *w, uint64_t order)
{
	int64_t weight = w->weight;

	if (!rq->length)
		rq->zero = w->vruntime;
	w->order = order;
	w->place = rq->length;
	rq->queue[rq->length++] = w;
	rq->key_sum += (w->vruntime - rq->zero) * weight;
	rq->weight_sum += weight;
	/* keep the keys (vruntime - zero) small, because large keys times the sum of the weights would overflow */
	if (rq->key_sum > INT64_MAX / 65536 || rq->key_sum < INT64_MIN / 65536) {
		int64_t shift = rq->key_sum / rq->weight_sum;

		rq->zero += shift;
		rq->key_sum -= shift * rq->weight_sum;
	}
}

void fair_remove(struct fair_rq *rq, struct worker *w)
{
	int64_t weight = w->weight;

	rq->queue[w->place] = rq->queue[--rq->length];
	rq->queue[w->place]->place = w->place;
	rq->key_sum -= (w->vruntime - rq->zero) * weight;
	rq->weight_sum -= weight;
}

/* Account for the running worker's time, as update_curr() in fair.c does. Set `delta` to 0 for a real-time worker. */
void fair_update(struct sim *sim, struct cpu *cpu, int64_t *delta)
{
	struct worker *w = cpu->curr;
	uint64_t clock;

	*delta = 0;
	if (!w || is_rt(w))
		return;
	clock = cpu_task_clock(sim, cpu);
	if (clock <= w->exec_start)
		return;
	*delta = (int64_t)(clock - w->exec_start);
	w->exec_start = clock;
	w->exec_sum += (uint64_t)*delta;
	w->vruntime += fair_delta(*delta, w);
}

static struct worker *pick(struct sim *sim, struct cpu *cpu)
{
	if (cpu->rt.length)
		return cpu->rt.queue[0];
	return fair_of(sim)->pick(sim, cpu);
}

uint64_t sched_charged(const struct sim *sim, const struct worker *w)
{
	const struct cpu *cpu = &sim->cpus[w->cpu];
	uint64_t clock = cpu_task_clock(sim, cpu);

	return w->charged_ns + (cpu->curr == w && clock > w->charged_from ? clock - w->charged_from : 0);
}

/*
 * Return the number of other workers that have run on a CPU since `w` last ran there. If `w` has never run there, count
 * all workers that have run there. Then move `w` to the front of the CPU's list of workers.
 */
static uint32_t count_others(struct cpu *cpu, const struct worker *w)
{
	uint32_t n = 0;

	while (n < cpu->n_recent && cpu->recent[n] != w)
		n++;
	cpu->n_recent += n == cpu->n_recent;
	memmove(&cpu->recent[1], cpu->recent, n * sizeof(*cpu->recent));
	cpu->recent[0] = w;
	return n;
}

/*
 * Add the cost of cold caches after another worker ran. The worker spends the time of refilling in its current or next
 * service.
 */
static void refill(const struct model *m, struct cpu *cpu, struct worker *w)
{
	uint64_t ns = m->refill_ns;

	if (m->refill_doubling_ns)
		ns += (uint64_t)(log2(1.0 + count_others(cpu, w)) * (double)m->refill_doubling_ns + 0.5);
	if (w->in_service)
		w->left_ns += ns;
	else if (ns > w->cold_ns)
		w->cold_ns = ns;
}

/* Let `next` run (NULL: the CPU becomes idle), and charge the cost of the switch (context_switch() in core.c). */
static void switch_to(struct sim *sim, struct cpu *cpu, struct worker *next)
{
	const struct model *m = &sim->model;
	struct worker *prev = cpu->curr;
	uint64_t cost = 0;

	if (prev) {
		prev->charged_ns = sched_charged(sim, prev);
		if (cpu->resume_at > sim->now)
			cpu->spent[SPENT_SWITCH] -= cpu->resume_at - sim->now;
		prev->off_since = sim->now;
		if (prev->in_service)
			prev->record.switches++;
		if (!is_rt(prev) && prev->on_rq)
			fair_of(sim)->put(sim, cpu, prev);
	} else {
		uint64_t idle_from =
			cpu->receive_until > cpu->idle_from ? cpu->receive_until : cpu->idle_from;

		if (sim->now > idle_from)
			cpu->spent[SPENT_IDLE] += sim->now - idle_from;
		cost += m->idle_exit_ns;
		cpu->next_tick = (sim->now / m->tick_ns + 1) * m->tick_ns;
	}
	cpu->curr = next;
	cpu->resume_at = sim->now;
	if (!next) {
		cpu->idle_from = sim->now;
	} else {
		if (!is_rt(next))
			fair_of(sim)->set_next(sim, cpu, next);
		/* the worker is charged for the switch, but not for the time in which the CPU leaves its idle state */
		next->charged_from = next->exec_start = cpu_task_clock(sim, cpu) + cost;
		cost += m->switch_ns;
		cpu->resume_at += cost;
		cpu->spent[SPENT_SWITCH] += cost;
		next->switches++;
		next->exec_sum_before = next->exec_sum;
		if (next->in_service) {
			uint64_t off = sim->now - next->off_since + next->record.off_cpu_ns;

			next->record.off_cpu_ns = off < UINT32_MAX ? (uint32_t)off : UINT32_MAX;
		}
		worker_resumes(next);
		if (cpu->warm != next)
			refill(m, cpu, next);
		cpu->warm = next;
	}
	if (sim->switched)
		sim->switched(sim, cpu, next);
}

static void schedule(struct sim *sim, struct cpu *cpu)
{
	struct worker *next;

	cpu_advance(sim, cpu);
	next = pick(sim, cpu);
	if (!next && cpu->curr && placement_newidle(sim, cpu))
		next = pick(sim, cpu);
	cpu->need_resched = false;
	if (next == cpu->curr)
		return;
	if (cpu->curr && cpu->curr->on_rq && !cpu->curr->delayed)
		cpu->curr->preemptions++;
	switch_to(sim, cpu, next);
	cpu_set(sim, cpu);
}

void sched_resched(struct sim *sim, struct cpu *cpu)
{
	(void)sim;
	cpu->need_resched = true;
}

void sched_check(struct sim *sim, struct cpu *cpu)
{
	if (cpu->need_resched && cpu->receive_until <= sim->now)
		schedule(sim, cpu);
}

/* Decide whether a woken worker preempts the running worker. A real-time worker preempts every fair worker. */
static void wakeup_preempt(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	if (!cpu->curr) {
		sched_resched(sim, cpu);
	} else if (is_rt(w) != is_rt(cpu->curr)) {
		if (is_rt(w))
			sched_resched(sim, cpu);
	} else if (!is_rt(w) && !cpu->need_resched) {
		/* real-time workers do not preempt each other, because all have the same priority */
		cpu_advance(sim, cpu);
		fair_of(sim)->wakeup_preempt(sim, cpu, w);
	}
}

void sched_wake(struct sim *sim, struct worker *w, struct cpu *waker)
{
	struct cpu *cpu = &sim->cpus[w->cpu];

	sim->counts.wakeups++;
	w->wakeups++;
	if (w->on_rq) {
		/* the worker slept but never left its queue, so no CPU has to be chosen (the kernel's ttwu_runnable()) */
		fair_of(sim)->requeue_delayed(sim, cpu, w);
	} else {
		cpu = placement_select(sim, w, waker);
		placement_idle_ended(sim, cpu);
		sim->counts.idle_wakeups += !sched_running(cpu);
		if (is_rt(w))
			rt_enqueue(cpu, w, false);
		else
			fair_of(sim)->enqueue(sim, cpu, w, true);
	}
	wakeup_preempt(sim, cpu, w);
	/* the waker's own CPU is inside a softirq, and reschedules at the end of the softirq */
	if (cpu != waker)
		sched_check(sim, cpu);
}

/*
 * Remove a worker from its queue before a change of its attributes. A running worker is also put back as if it did not
 * run. If the priority stays, the kernel's dequeue_entity() in fair.c leaves min_vruntime unchanged (DEQUEUE_SAVE without
 * DEQUEUE_MOVE).
 */
static void save(struct sim *sim, struct cpu *cpu, struct worker *w, bool same_priority)
{
	const struct fair_class *fair = fair_of(sim);
	int64_t min_vruntime;

	if (is_rt(w)) {
		rt_dequeue(cpu, w);
		return;
	}
	fair->update_curr(sim, cpu);
	min_vruntime = cpu->fair.min_vruntime;
	fair->dequeue(sim, cpu, w, false);
	if (same_priority)
		cpu->fair.min_vruntime = min_vruntime;
}

static void restore(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	/*
	 * ASSUME every worker is back in its queue before a CPU chooses its next worker, so the running worker may be
	 * the first of its queue
	 */
	if (is_rt(w))
		rt_enqueue(cpu, w, cpu->curr == w);
	else
		fair_of(sim)->enqueue(sim, cpu, w, false);
	if (cpu->curr != w)
		return;
	w->exec_start = cpu_task_clock(sim, cpu);
	w->exec_sum_before = w->exec_sum;
	if (!is_rt(w))
		fair_of(sim)->set_next(sim, cpu, w);
}

/*
 * Reschedule if a change of policy or weight lets another worker run, as check_class_changed() in core.c does with
 * switched_to_rt(), switched_to_fair() and prio_changed_fair().
 */
static void check_change(struct sim *sim, struct cpu *cpu, struct worker *w, bool was_rt, uint32_t weight)
{
	bool running = cpu->curr == w;

	if (w->delayed || (was_rt == is_rt(w) && w->weight == weight))
		return;
	if (!running)
		wakeup_preempt(sim, cpu, w);
	else if (was_rt || w->weight < weight)
		sched_resched(sim, cpu);
}

void sched_set(struct sim *sim, struct worker *w)
{
	const struct model *m = &sim->model;
	const struct fair_class *fair = fair_of(sim);
	struct cpu *cpu = &sim->cpus[w->cpu];
	bool was_rt = is_rt(w), rt = m->policy == POLICY_FIFO || m->policy == POLICY_RR, queued;
	uint32_t old_weight = w->weight, weight = rt ? old_weight : sched_weight(m->nice);

	/*
	 * EEVDF requeues a worker without a slice of its own even if no setting changes, because the call sets the base
	 * slice again
	 */
	if (w->policy == m->policy && weight == old_weight && (rt || m->rules == RULES_CFS))
		return;
	cpu_advance(sim, cpu);
	if (w->delayed && rt)
		fair->dequeue(sim, cpu, w, true);
	queued = w->on_rq;
	if (queued)
		save(sim, cpu, w, !rt && !was_rt && weight == old_weight);
	else if (rt && !was_rt)
		fair->leave(sim, cpu, w);
	w->policy = m->policy;
	if (!rt) {
		fair->set_weight(w, weight);
		w->slice = (int64_t)m->slice_ns;
	}
	if (queued) {
		restore(sim, cpu, w);
		check_change(sim, cpu, w, was_rt, old_weight);
	} else if (was_rt && !rt) {
		fair->join(sim, cpu, w);
	}
}

void sched_sleep(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	if (is_rt(w))
		rt_dequeue(cpu, w);
	else
		fair_of(sim)->dequeue(sim, cpu, w, true);
	schedule(sim, cpu);
}

void sched_yield_curr(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	if (is_rt(w)) {
		/* move the worker to the end of its queue, as the kernel's requeue_task_rt() in rt.c does */
		rt_dequeue(cpu, w);
		rt_enqueue(cpu, w, false);
	} else if (sched_running(cpu) > 1) {
		fair_of(sim)->yield(sim, cpu);
	}
	schedule(sim, cpu);
}

/* Time after which a SCHED_RR worker lets the next worker run (the kernel's RR_TIMESLICE, 100 ms). */
#define RR_TIMESLICE_NS 100000000

/* Move a SCHED_RR worker to the end of its queue when its time is used up (the kernel's task_tick_rt() in rt.c). */
static void rt_tick(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	if (w->policy != POLICY_RR)
		return;
	if (w->rt_left_ns > sim->model.tick_ns) {
		w->rt_left_ns -= sim->model.tick_ns;
		return;
	}
	w->rt_left_ns = RR_TIMESLICE_NS;
	if (cpu->rt.length > 1) {
		rt_dequeue(cpu, w);
		rt_enqueue(cpu, w, false);
		sched_resched(sim, cpu);
	}
}

void sched_tick(struct sim *sim, struct cpu *cpu)
{
	if (is_rt(cpu->curr))
		rt_tick(sim, cpu);
	else
		fair_of(sim)->tick(sim, cpu);
	placement_tick(sim, cpu);
	sched_check(sim, cpu);
}
