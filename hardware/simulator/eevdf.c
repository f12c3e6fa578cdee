// SPDX-License-Identifier: MIT
/*
 * Earliest eligible virtual deadline first, as in kernel/sched/fair.c of Linux 6.18. The kernel has a tree that is sorted
 * by deadline. This file searches an array instead, with the same result. If several workers have the same deadline, the
 * worker that was enqueued first comes first.
 */
#include "sched.h"

static struct worker *running(const struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	return w && !is_rt(w) && w->on_rq ? w : NULL;
}

/* Return the weighted average of the virtual runtimes, rounded down, as the kernel's avg_vruntime() in fair.c does. */
int64_t eevdf_average(const struct cpu *cpu)
{
	const struct fair_rq *rq = &cpu->fair;
	const struct worker *curr = running(cpu);
	int64_t sum = rq->key_sum, load = rq->weight_sum;

	if (curr) {
		sum += (curr->vruntime - rq->zero) * (int64_t)curr->weight;
		load += curr->weight;
	}
	if (!load)
		return rq->zero;
	if (sum < 0)
		sum -= load - 1;
	return rq->zero + sum / load;
}

/* Return whether a worker's vruntime is at most the average, as the kernel's vruntime_eligible() in fair.c does. */
static bool is_eligible(const struct cpu *cpu, const struct worker *w)
{
	const struct fair_rq *rq = &cpu->fair;
	const struct worker *curr = running(cpu);
	int64_t sum = rq->key_sum, load = rq->weight_sum;

	if (curr) {
		sum += (curr->vruntime - rq->zero) * (int64_t)curr->weight;
		load += curr->weight;
	}
	return sum >= (w->vruntime - rq->zero) * load;
}

/* Store the worker's lag: the average vruntime minus its own vruntime, limited as in update_entity_lag() in fair.c. */
static void update_lag(const struct sim *sim, const struct cpu *cpu, struct worker *w)
{
	int64_t longest =
		2 * w->slice > (int64_t)sim->model.tick_ns ? 2 * w->slice : (int64_t)sim->model.tick_ns;
	int64_t limit = fair_delta(longest, w);
	int64_t lag = eevdf_average(cpu) - w->vruntime;

	w->vlag = lag > limit ? limit : lag < -limit ? -limit : lag;
}

/* Return the shortest slice of all queued workers and `curr`, as the kernel's cfs_rq_min_slice() in fair.c does. */
static int64_t shortest_slice(const struct cpu *cpu, const struct worker *curr)
{
	int64_t shortest = curr ? curr->slice : INT64_MAX;

	for (uint32_t i = 0; i < cpu->fair.length; i++)
		if (cpu->fair.queue[i]->slice < shortest)
			shortest = cpu->fair.queue[i]->slice;
	return shortest;
}

/* Protect a worker from preemption for a while after it starts to run, as the kernel's set_protect_slice() does. */
static void protect(const struct sim *sim, const struct cpu *cpu, struct worker *w)
{
	int64_t slice =
		sim->model.run_to_parity ? shortest_slice(cpu, NULL) : (int64_t)sim->model.base_slice_ns;

	w->vprot = w->deadline;
	if (slice < w->slice && w->vruntime + fair_delta(slice, w) < w->vprot)
		w->vprot = w->vruntime + fair_delta(slice, w);
}

static bool is_protected(const struct worker *w)
{
	return w->vprot > w->vruntime;
}

/* Return the eligible worker with the earliest deadline, as the kernel's __pick_eevdf() in fair.c does. */
static struct worker *pick_eevdf(const struct cpu *cpu, bool with_protection)
{
	const struct fair_rq *rq = &cpu->fair;
	struct worker *curr = running(cpu), *best = NULL;

	if (rq->length + (curr != NULL) == 1)
		return curr ? curr : rq->queue[0];
	if (curr && !is_eligible(cpu, curr))
		curr = NULL;
	if (curr && with_protection && is_protected(curr))
		return curr;
	for (uint32_t i = 0; i < rq->length; i++) {
		struct worker *w = rq->queue[i];

		if (best && (w->deadline > best->deadline ||
			     (w->deadline == best->deadline && w->order > best->order)))
			continue;
		if (is_eligible(cpu, w))
			best = w;
	}
	return !best || (curr && curr->deadline < best->deadline) ? curr : best;
}

/* Charge the running worker, and renew a deadline that has passed (the kernel's update_curr(), update_deadline()). */
static void update_curr(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;
	bool spent = false;
	int64_t delta;

	fair_update(sim, cpu, &delta);
	if (!delta)
		return;
	if (w->vruntime >= w->deadline) {
		w->deadline = w->vruntime + fair_delta(w->slice, w);
		spent = true;
	}
	if (cpu->fair.length + w->on_rq > 1 && (spent || !is_protected(w)))
		sched_resched(sim, cpu);
}

/*
 * Set the vruntime and deadline of a worker that joins the queue, as the kernel's place_entity() in fair.c does. No worker
 * starts during a run, so PLACE_DEADLINE_INITIAL is not needed.
 */
static void place(const struct sim *sim, const struct cpu *cpu, struct worker *w)
{
	const struct worker *curr = running(cpu);
	int64_t lag = 0;

	if (sim->model.place_lag && (cpu->fair.length || curr) && w->vlag) {
		int64_t load = cpu->fair.weight_sum + (curr ? curr->weight : 0);

		lag = w->vlag * (load + w->weight) / load;
	}
	w->vruntime = eevdf_average(cpu) - lag;
	if (w->relative_deadline) {
		w->deadline += w->vruntime;
		w->relative_deadline = false;
		return;
	}
	w->deadline = w->vruntime + fair_delta(w->slice, w);
}

static void enqueue(struct sim *sim, struct cpu *cpu, struct worker *w, bool wakeup)
{
	(void)wakeup;
	update_curr(sim, cpu);
	place(sim, cpu, w);
	fair_add(&cpu->fair, w, sim->order++);
	w->queued_at = w->used_at = w->order;
	w->on_rq = true;
}

/*
 * Remove a worker from the queue. This function has the steps of the kernel's dequeue_entity() (fair.c) after
 * DELAY_DEQUEUE.
 */
static void leave(struct sim *sim, struct cpu *cpu, struct worker *w, bool sleep)
{
	update_lag(sim, cpu, w);
	if (!sleep) {
		/* keep the distance to the deadline, because place() sets a new vruntime (PLACE_REL_DEADLINE) */
		w->deadline -= w->vruntime;
		w->relative_deadline = true;
	}
	if (w != cpu->curr)
		fair_remove(&cpu->fair, w);
	w->on_rq = false;
}

static void end_delay(struct cpu *cpu, struct worker *w)
{
	w->delayed = false;
	cpu->fair.delayed--;
}

/*
 * Remove a sleeping worker that stayed queued because of its negative lag. As in finish_delayed_dequeue_entity() with
 * DELAY_ZERO, a lag that is positive by now becomes 0, so that the worker gains nothing by its sleep.
 */
static void finish_delay(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	leave(sim, cpu, w, true);
	end_delay(cpu, w);
	if (w->vlag > 0)
		w->vlag = 0;
}

static bool dequeue(struct sim *sim, struct cpu *cpu, struct worker *w, bool sleep)
{
	update_curr(sim, cpu);
	if (sleep && w->delayed) {
		finish_delay(sim, cpu, w);
		return true;
	}
	if (sleep && sim->model.delay_dequeue && !is_eligible(cpu, w)) {
		w->delayed = true;
		cpu->fair.delayed++;
		return false;
	}
	leave(sim, cpu, w, sleep);
	return true;
}

/* Wake a worker that slept but stayed in the queue (the kernel's requeue_delayed_entity() with DELAY_ZERO). */
static void requeue_delayed(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	update_lag(sim, cpu, w);
	if (w->vlag > 0) {
		fair_remove(&cpu->fair, w);
		w->vlag = 0;
		place(sim, cpu, w);
		fair_add(&cpu->fair, w, sim->order++);
	}
	end_delay(cpu, w);
}

static void put(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	update_curr(sim, cpu);
	fair_add(&cpu->fair, w, sim->order++);
}

/* Choose the next worker, and remove sleeping workers from the queue (pick_task_fair(), pick_next_entity() in fair.c). */
static struct worker *pick(struct sim *sim, struct cpu *cpu)
{
	if (running(cpu))
		update_curr(sim, cpu);
	while (cpu->fair.length || running(cpu)) {
		struct worker *w = pick_eevdf(cpu, true);

		if (!w->delayed)
			return w;
		finish_delay(sim, cpu, w);
	}
	return NULL;
}

/* Take the chosen worker out of the queue, because it runs now (the kernel's set_next_entity() in fair.c). */
static void set_next(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	fair_remove(&cpu->fair, w);
	w->used_at = sim->order++;
	protect(sim, cpu, w);
}

/* Decide whether a woken worker preempts the running worker (the kernel's check_preempt_wakeup_fair() in fair.c). */
static void wakeup_preempt(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	struct worker *curr = cpu->curr;
	bool is_short;

	if (curr->policy == POLICY_IDLE && w->policy != POLICY_IDLE) {
		curr->vprot = curr->vruntime;
		sched_resched(sim, cpu);
		return;
	}
	if (w->policy != POLICY_OTHER)
		return;
	update_curr(sim, cpu);
	is_short = sim->model.preempt_short && w->slice < curr->slice;
	if (pick_eevdf(cpu, !is_short) == w) {
		if (is_short && is_protected(curr))
			curr->vprot = curr->vruntime;
		sched_resched(sim, cpu);
	} else if (sim->model.run_to_parity && is_short) {
		int64_t end = curr->vruntime + fair_delta(shortest_slice(cpu, curr), curr);

		if (end < curr->vprot)
			curr->vprot = end;
	}
}

/* Let the running worker give up the rest of its slice (the kernel's yield_task_fair() in fair.c). */
static void yield(struct sim *sim, struct cpu *cpu)
{
	struct worker *w = cpu->curr;

	update_curr(sim, cpu);
	if (is_eligible(cpu, w)) {
		w->vruntime = w->deadline;
		w->deadline += fair_delta(w->slice, w);
	}
}

/* Change a worker's weight, and scale its lag and deadline to match (the kernel's reweight_entity() in fair.c). */
static void set_weight(struct worker *w, uint32_t weight)
{
	w->vlag = w->vlag * (int64_t)w->weight / (int64_t)weight;
	if (w->relative_deadline)
		w->deadline = w->deadline * (int64_t)w->weight / (int64_t)weight;
	w->weight = weight;
}

static void keep(struct sim *sim, struct cpu *cpu, struct worker *w)
{
	/* a sleeping worker keeps its lag, so nothing changes */
	(void)sim, (void)cpu, (void)w;
}

const struct fair_class EEVDF = {
	.enqueue = enqueue,
	.dequeue = dequeue,
	.requeue_delayed = requeue_delayed,
	.put = put,
	.pick = pick,
	.set_next = set_next,
	.wakeup_preempt = wakeup_preempt,
	.tick = update_curr,
	.yield = yield,
	.update_curr = update_curr,
	.set_weight = set_weight,
	.join = keep,
	.leave = keep,
};
