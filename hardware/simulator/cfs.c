// SPDX-License-Identifier: MIT
/*
 * The completely fair scheduler, as in kernel/sched/fair.c of Linux 5.10 with its default features: GENTLE_FAIR_SLEEPERS,
 * LAST_BUDDY and WAKEUP_PREEMPTION, without NEXT_BUDDY. The kernel has a tree that is sorted by virtual runtime. This file
 * searches an array instead. If several workers have the same virtual runtime, the worker that was enqueued first comes
 * first.
 */
#include "sched.h"

static struct worker *running(const struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	return w && !is_rt(w) && w->on_rq ? w : NULL;
}

static uint32_t nr_running(const struct cpu *cpu)
{
	return cpu->fair.length + (running(cpu) != NULL);
}

static bool is_before(const struct worker *a, const struct worker *b)
{
	return a->vruntime != b->vruntime ? a->vruntime < b->vruntime : a->order < b->order;
}

/* Return the queued worker with the smallest vruntime, except for the worker `without` (NULL: exclude no worker). */
static struct worker *leftmost(const struct fair_rq *rq, const struct worker *without)
{
	struct worker *best = NULL;

	for (uint32_t i = 0; i < rq->length; i++)
		if (rq->queue[i] != without && (!best || is_before(rq->queue[i], best)))
			best = rq->queue[i];
	return best;
}

/* Raise min_vruntime to the smallest vruntime on the CPU, but never lower it (update_min_vruntime() in fair.c). */
static void update_min_vruntime(struct cpu *cpu)
{
	struct fair_rq *rq = &cpu->fair;
	const struct worker *curr = running(cpu), *left = leftmost(rq, NULL);
	int64_t least;

	if (!curr && !left)
		return;
	if (curr && left)
		least = curr->vruntime < left->vruntime ? curr->vruntime : left->vruntime;
	else
		least = curr ? curr->vruntime : left->vruntime;
	if (least > rq->min_vruntime)
		rq->min_vruntime = least;
}

static void update_curr(struct sim *sim, struct cpu *cpu)
{
	int64_t delta;

	fair_update(sim, cpu, &delta);
	if (delta)
		update_min_vruntime(cpu);
}

/* Return the time in ns that a worker may run in each period (the kernel's sched_slice(), __sched_period()). */
static uint64_t slice_of(const struct sim *sim, const struct cpu *cpu, const struct worker *w)
{
	const struct model *m = &sim->model;
	uint64_t nr = nr_running(cpu), load = (uint64_t)cpu->fair.weight_sum, slice;
	uint64_t period = nr > m->nr_latency ? nr * m->min_granularity_ns : m->latency_ns;

	if (running(cpu))
		load += running(cpu)->weight;
	slice = period * w->weight / load;
	/* the feature BASE_SLICE of Linux 6.1 extends a slice to the minimal granularity */
	return m->release == RELEASE_6_1 && slice < m->min_granularity_ns ? m->min_granularity_ns : slice;
}

static void clear_buddies(struct fair_rq *rq, const struct worker *w)
{
	if (rq->next == w)
		rq->next = NULL;
	if (rq->last == w)
		rq->last = NULL;
	if (rq->skip == w)
		rq->skip = NULL;
}

/*
 * Compare two workers, as the kernel's wakeup_preempt_entity() in fair.c does. Return 1 if w should replace curr, 0 if
 * their vruntimes differ too little for a preemption, and -1 if the vruntime of curr is not larger.
 */
static int compare(const struct sim *sim, const struct worker *curr, const struct worker *w)
{
	int64_t difference = curr->vruntime - w->vruntime;

	if (difference <= 0)
		return -1;
	return difference > fair_delta((int64_t)sim->model.wakeup_granularity_ns, w);
}

/*
 * Raise a worker's vruntime if necessary, so that the credit for sleep is at most half of the latency (the kernel's
 * place_entity() with GENTLE_FAIR_SLEEPERS). In Linux 6.1, the credit of a SCHED_IDLE worker is at most half of the
 * minimal granularity.
 */
static void place(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	const struct model *m = &sim->model;
	bool small = m->release == RELEASE_6_1 && w->policy == POLICY_IDLE;
	uint64_t credit = (small ? m->min_granularity_ns : m->latency_ns) / 2;
	int64_t floor = cpu->fair.min_vruntime - (int64_t)credit;

	if (w->vruntime < floor)
		w->vruntime = floor;
}

/*
 * Queue a worker, as the kernel's enqueue_entity() in fair.c does. A worker that left a queue without sleeping has a
 * vruntime relative to that queue's min_vruntime. Add the min_vruntime of the new queue to such a vruntime.
 */
static void enqueue(struct sim *sim, struct cpu *cpu, struct worker *w, bool wakeup)
{
	update_curr(sim, cpu);
	if (!wakeup || w->migrated)
		w->vruntime += cpu->fair.min_vruntime;
	w->migrated = false;
	if (wakeup)
		place(sim, cpu, w);
	fair_add(&cpu->fair, w, sim->order++);
	w->queued_at = w->used_at = w->order;
	w->on_rq = true;
}

static bool dequeue(struct sim *sim, struct cpu *cpu, struct worker *w, bool sleep)
{
	update_curr(sim, cpu);
	clear_buddies(&cpu->fair, w);
	if (w != cpu->curr)
		fair_remove(&cpu->fair, w);
	w->on_rq = false;
	if (!sleep)
		w->vruntime -= cpu->fair.min_vruntime;
	update_min_vruntime(cpu);
	return true;
}

static void requeue_delayed(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	(void)cpu, (void)w;
	sim->failure = "a worker was woken although it was not asleep";
}

static void put(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	update_curr(sim, cpu);
	fair_add(&cpu->fair, w, sim->order++);
}

/*
 * Choose the next worker, as the kernel's pick_next_entity() in fair.c does. In general, this is the worker with the
 * smallest vruntime. But the function prefers `next` and `last` of the queue, and avoids `skip`, as long as the
 * vruntime of its choice exceeds the smallest vruntime by at most the wake-up granularity.
 */
static struct worker *pick(struct sim *sim, struct cpu *cpu)
{
	struct fair_rq *rq = &cpu->fair;
	struct worker *curr = running(cpu), *left, *best;

	if (curr)
		update_curr(sim, cpu);
	left = leftmost(rq, NULL);
	if (!left || (curr && curr->vruntime < left->vruntime))
		left = curr;
	best = left;
	if (!best)
		return NULL;
	if (rq->skip == best) {
		struct worker *second = leftmost(rq, best);

		if (best != curr && (!second || (curr && curr->vruntime < second->vruntime)))
			second = curr;
		if (second && compare(sim, second, left) < 1)
			best = second;
	}
	if (rq->next && compare(sim, rq->next, left) < 1)
		best = rq->next;
	else if (rq->last && compare(sim, rq->last, left) < 1)
		best = rq->last;
	clear_buddies(rq, best);
	return best;
}

static void set_next(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	fair_remove(&cpu->fair, w);
	w->used_at = sim->order++;
}

/* Decide whether a woken worker preempts the running worker (the kernel's check_preempt_wakeup() in fair.c). */
static void wakeup_preempt(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	struct worker *curr = cpu->curr;
	bool many = nr_running(cpu) >= sim->model.nr_latency;

	if (curr->policy == POLICY_IDLE && w->policy != POLICY_IDLE) {
		sched_resched(sim, cpu);
		return;
	}
	if (w->policy != POLICY_OTHER)
		return;
	update_curr(sim, cpu);
	if (compare(sim, curr, w) != 1)
		return;
	cpu->fair.next = w;
	sched_resched(sim, cpu);
	if (curr->on_rq && many)
		cpu->fair.last = curr;
}

/* Preempt the running worker at a tick if it has used its slice (entity_tick(), check_preempt_tick() in fair.c). */
static void tick(struct sim *sim, struct cpu *cpu)
{
	struct worker *curr = cpu->curr;
	uint64_t ideal, ran;

	update_curr(sim, cpu);
	if (nr_running(cpu) < 2)
		return;
	ideal = slice_of(sim, cpu, curr);
	ran = curr->exec_sum - curr->exec_sum_before;
	if (ran > ideal) {
		sched_resched(sim, cpu);
		clear_buddies(&cpu->fair, curr);
		return;
	}
	if (ran < sim->model.min_granularity_ns)
		return;
	if (curr->vruntime - leftmost(&cpu->fair, NULL)->vruntime > (int64_t)ideal)
		sched_resched(sim, cpu);
}

/* Make pick() avoid the running worker at the next choice (the kernel's yield_task_fair() in fair.c). */
static void yield(struct sim *sim, struct cpu *cpu)
{
	clear_buddies(&cpu->fair, cpu->curr);
	if (cpu->curr->policy != POLICY_BATCH)
		update_curr(sim, cpu);
	cpu->fair.skip = cpu->curr;
}

static void set_weight(struct worker *w, uint32_t weight)
{
	w->weight = weight;
}

/* Add min_vruntime to the vruntime of a worker that joins this class (the kernel's attach_task_cfs_rq() in fair.c). */
static void join(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	(void)sim;
	w->vruntime += cpu->fair.min_vruntime;
}

/* Subtract min_vruntime from the vruntime of a worker that leaves this class (detach_task_cfs_rq() in fair.c). */
static void leave(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	place(sim, cpu, w);
	w->vruntime -= cpu->fair.min_vruntime;
}

const struct fair_class CFS = {
	.enqueue = enqueue,
	.dequeue = dequeue,
	.requeue_delayed = requeue_delayed,
	.put = put,
	.pick = pick,
	.set_next = set_next,
	.wakeup_preempt = wakeup_preempt,
	.tick = tick,
	.yield = yield,
	.update_curr = update_curr,
	.set_weight = set_weight,
	.join = join,
	.leave = leave,
};
