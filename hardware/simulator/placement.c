// SPDX-License-Identifier: MIT
/*
 * Functions that choose the CPU of a woken worker, and that let CPUs take work from each other. The rules are the
 * rules of kernel/sched/fair.c in Linux 5.10 and 6.18. Where Linux 3.2 or 6.1 differ, the comment of a function says so.
 * The cores of a processor share their last-level cache.
 * ASSUME a load is the weight of the runnable workers now. PELT, which averages loads over about 32 ms, is not modelled.
 * The model lacks recent_used_cpu, SIS_PROP and SIS_UTIL (so it searches all CPUs of the cache), and active balancing.
 */
#include "sched.h"

static struct cpu *cpu_of(struct sim *sim, const struct worker *w)
{
	return &sim->cpus[w->cpu];
}

static bool shares_cache(const struct sim *sim, const struct cpu *a, const struct cpu *b)
{
	return a->id / sim->model.cores_per_processor == b->id / sim->model.cores_per_processor;
}

static bool is_idle(const struct cpu *cpu)
{
	return !cpu->curr && !sched_running(cpu);
}

/* Return whether a woken worker can run at once: the CPU is idle or runs only SCHED_IDLE tasks (sched_idle_cpu()). */
static bool is_available(const struct cpu *cpu)
{
	if (is_idle(cpu))
		return true;
	if (cpu->rt.length || (cpu->curr && cpu->curr->policy != POLICY_IDLE))
		return false;
	for (uint32_t i = 0; i < cpu->fair.length; i++)
		if (cpu->fair.queue[i]->policy != POLICY_IDLE)
			return false;
	return true;
}

/* Return whether the CPU affinity of a worker includes a CPU (the kernel's cpus_ptr). */
static bool may_run(const struct worker *w, const struct cpu *cpu)
{
	return cpu->id >= w->first_cpu && cpu->id - w->first_cpu < w->cpus;
}

/*
 * Return the number of CPUs that the run uses on a CPU's processor. The run may use only a part of the last processor.
 */
static uint32_t siblings(const struct sim *sim, const struct cpu *cpu, uint32_t *first)
{
	uint32_t size = sim->model.cores_per_processor;

	*first = cpu->id / size * size;
	return *first + size < sim->model.cores ? size : sim->model.cores - *first;
}

/* Return the number of runnable workers. Exclude sleeping workers that stay queued only until their lag is gone. */
static uint32_t runnable(const struct cpu *cpu)
{
	return sched_running(cpu) - cpu->fair.delayed;
}

static void migrate(struct sim *sim, struct worker *w, struct cpu *to)
{
	struct cpu *from = cpu_of(sim, w);

	w->left_ns += shares_cache(sim, from, to) ? sim->model.refill_near_ns : sim->model.refill_far_ns;
	w->exec_start = 0;
	w->migrations++;
	w->cpu = to->id;
}

#define SECOND_NS 1000000000

static uint32_t decay(uint32_t flips, uint64_t *at, uint64_t now)
{
	if (now <= *at + SECOND_NS)
		return flips;
	*at = now;
	return flips >> 1;
}

/*
 * Return how often the waker has recently woken a different worker than at its previous wake-up, including the present
 * wake-up (the kernel's record_wakee()). The waker is the task on the CPU `waker` that the softirq interrupted.
 */
static uint32_t waker_flips(struct sim *sim, struct cpu *waker, const struct worker *w)
{
	uint32_t *flips = &waker->flips, *last = &waker->last_wakee;
	uint64_t *at = &waker->flips_at;

	if (waker->curr) {
		flips = &waker->curr->flips;
		last = &waker->curr->last_wakee;
		at = &waker->curr->flips_at;
	}
	*flips = decay(*flips, at, sim->now);
	if (*last != w->id) {
		*last = w->id;
		++*flips;
	}
	return *flips;
}

/* Return the number of online CPUs that share the cache of a CPU (the kernel's sd_llc_size). */
static uint32_t cache_size(const struct sim *sim, const struct cpu *cpu)
{
	uint32_t first, used = siblings(sim, cpu, &first);

	return sim->model.online_per_processor > used ? sim->model.online_per_processor : used;
}

/*
 * Return whether waker and wakee wake so many different tasks that the tasks do not fit on one processor (the kernel's
 * wake_wide()). `size` is the number of CPUs that share the waker's cache. `waker` and `wakee` are the counts from
 * waker_flips().
 */
static bool wakes_many(uint32_t size, uint32_t waker, uint32_t wakee)
{
	uint32_t master = waker > wakee ? waker : wakee, slave = waker > wakee ? wakee : waker;

	return slave >= size && master >= slave * size;
}

/*
 * Choose between the waker's CPU and the worker's previous CPU, as the kernel's wake_affine() in fair.c does. Wake-ups by
 * the network stack are synchronous (WF_SYNC). Linux 3.2 only compares loads, and chooses the waker's CPU if it will be
 * idle.
 */
static struct cpu *affine(struct sim *sim, const struct worker *w, struct cpu *here, struct cpu *prev)
{
	uint64_t load_here = (uint64_t)here->fair.weight_sum, load_prev = (uint64_t)prev->fair.weight_sum;
	bool old = sim->model.release == RELEASE_3_2;

	if (old && runnable(here) <= 1)
		return here;
	if (!old && is_idle(here) && shares_cache(sim, here, prev))
		return is_idle(prev) ? prev : here;
	if (runnable(here) == 1)
		return here;
	if (is_idle(prev))
		return prev;
	/*
	 * add the running worker's weight only for `prev`, because a synchronous wake-up announces that the running worker
	 * of `here` will sleep soon
	 */
	if (prev->curr && !is_rt(prev->curr))
		load_prev += prev->curr->weight;
	/*
	 * Like the kernel, increase the load of prev by (imbalance_pct - 100) / 2 percent. imbalance_pct is 117, and 125 in Linux 3.2.
	 */
	if (old)
		return (load_here + w->weight) * 100 <= load_prev * (100 + 25 / 2) ? here : prev;
	return (load_here + w->weight) * 100 < load_prev * (100 + 17 / 2) ? here : prev;
}

/* Return an idle CPU that shares a cache with `target`, otherwise `target` (the kernel's select_idle_sibling()). */
static struct cpu *idle_sibling(struct sim *sim, const struct worker *w, struct cpu *prev, struct cpu *target)
{
	uint32_t first, size = siblings(sim, target, &first);

	if (is_available(target))
		return target;
	if (prev != target && shares_cache(sim, prev, target) && is_available(prev))
		return prev;
	for (uint32_t i = 1; i < size; i++) {
		struct cpu *cpu = &sim->cpus[first + (target->id - first + i) % size];

		if (is_available(cpu) && may_run(w, cpu))
			return cpu;
	}
	return target;
}

/* Choose a CPU without real-time workers for a woken real-time worker (select_task_rq_rt(), find_lowest_rq() in rt.c). */
static struct cpu *select_rt(struct sim *sim, const struct worker *w, struct cpu *waker)
{
	struct cpu *prev = cpu_of(sim, w), *found = NULL;

	if (!prev->rt.length)
		return prev;
	if (waker && !waker->rt.length && may_run(w, waker))
		return waker;
	for (uint32_t i = 0; i < sim->model.cores; i++) {
		struct cpu *cpu = &sim->cpus[i];

		if (!cpu->rt.length && may_run(w, cpu) &&
		    (!found || (!shares_cache(sim, found, prev) && shares_cache(sim, cpu, prev))))
			found = cpu;
	}
	return found ? found : prev;
}

struct cpu *placement_select(struct sim *sim, struct worker *w, struct cpu *waker)
{
	struct cpu *prev = cpu_of(sim, w), *target = prev;

	if (sim->model.cores == 1 || !sim->model.placement || prev->id >= sim->model.cores)
		return prev;
	if (is_rt(w)) {
		target = select_rt(sim, w, waker);
	} else {
		if (waker) {
			bool many = wakes_many(cache_size(sim, waker), waker_flips(sim, waker, w), w->flips);

			/* Linux 3.2 has no wake_wide() */
			if ((!many || sim->model.release == RELEASE_3_2) && waker != prev &&
			    may_run(w, waker))
				target = affine(sim, w, waker, prev);
		}
		target = idle_sibling(sim, w, prev, target);
	}
	if (target != prev) {
		migrate(sim, w, target);
		/* make the vruntime relative, because each CPU has its own vruntime (migrate_task_rq_fair() in Linux 5.10) */
		if (sim->model.rules == RULES_CFS && !is_rt(w)) {
			w->vruntime -= prev->fair.min_vruntime;
			w->migrated = true;
		}
	}
	return target;
}

/* Return the cost of a search. The kernel has no domain of a single CPU, so its search costs nothing (sd_degenerate()). */
static uint64_t domain_cost(const struct sim *sim, uint32_t cpus)
{
	return cpus > 1 ? sim->model.balance_ns * cpus : 0;
}

/*
 * Return the kernel's max_idle_balance_cost, which rebalance_domains() in fair.c sums over the domains of a CPU. Linux 3.2
 * has only the migration cost.
 */
static uint64_t largest_cost(const struct sim *sim, const struct cpu *cpu)
{
	uint32_t first, size = siblings(sim, cpu, &first);
	uint64_t cost = domain_cost(sim, size);

	if (size < sim->model.cores)
		cost += domain_cost(sim, sim->model.cores);
	if (sim->model.release == RELEASE_3_2 || cost < sim->model.migration_cost_ns)
		return sim->model.migration_cost_ns;
	return cost;
}

/*
 * Update a CPU's average idle time when the CPU stops being idle (ttwu_do_activate(), update_avg() in core.c). In Linux 3.2, an
 * idle time above the limit sets the average to the limit.
 */
void placement_idle_ended(struct sim *sim, struct cpu *cpu)
{
	uint64_t most;
	int64_t difference;

	if (cpu->idle_stamp == NEVER)
		return;
	most = 2 * largest_cost(sim, cpu);
	difference = (int64_t)(sim->now - cpu->idle_stamp) - (int64_t)cpu->average_idle;
	cpu->average_idle += (uint64_t)(difference / 8);
	if (cpu->average_idle > most ||
	    (sim->model.release == RELEASE_3_2 && sim->now - cpu->idle_stamp > most))
		cpu->average_idle = most;
	cpu->idle_stamp = NEVER;
}

/* Return whether a worker ran so recently that a CPU's cache still holds its data (the kernel's task_hot()). */
static bool is_hot(const struct sim *sim, const struct cpu *from, const struct cpu *to,
		   const struct worker *w)
{
	if (w->policy == POLICY_IDLE)
		return false;
	if (sched_running(to) && (w == from->fair.next || w == from->fair.last))
		return true;
	return (int64_t)(cpu_task_clock(sim, from) - w->exec_start) < (int64_t)sim->model.migration_cost_ns;
}

/* A scheduling domain of a CPU: the CPUs of its processor, or all CPUs (struct sched_domain in the kernel). */
struct domain {
	uint32_t first, cpus; /* the CPUs that the run uses */
	uint32_t group;       /* number of CPUs in each of the groups that balancing compares */
	/* limits of the interval between balancing, and the factor by which a busy CPU balances less often */
	uint32_t least_ms, most_ms, busy_factor;
	uint32_t nice_tries;   /* after more failures, a worker with a warm cache may move, too */
	struct balance *state; /* the CPU's state for this domain */
};

/*
 * Find a CPU's domain at a level: its processor (level 0), or all processors (level 1). Return false if the CPU has no such
 * domain, because a domain has at least two online CPUs and two groups. The numbers are from sd_init() of
 * kernel/sched/topology.c in Linux 5.10. For Linux 3.2, they are from SD_CPU_INIT, or from SD_NODE_INIT of x86 if each processor
 * is a NUMA node.
 */
static bool find_domain(const struct sim *sim, struct cpu *cpu, uint32_t level, struct domain *d)
{
	uint32_t first, used = siblings(sim, cpu, &first), online = cache_size(sim, cpu);
	bool between_nodes = level && sim->model.numa;

	*d = (struct domain){ .first = first, .cpus = used, .group = 1, .state = &cpu->balance[level] };
	if (level) {
		if (used == sim->model.cores)
			return false;
		*d = (struct domain){ .cpus = sim->model.cores,
				      .group = sim->model.cores_per_processor,
				      .state = &cpu->balance[level] };
		online = sim->model.online > d->cpus ? sim->model.online : d->cpus;
	}
	d->nice_tries = between_nodes ? 2 : 1;
	if (sim->model.release == RELEASE_3_2) {
		d->least_ms = between_nodes ? 8 : 1;
		d->most_ms = 4 * d->least_ms;
		d->busy_factor = between_nodes ? 32 : 64;
	} else {
		d->least_ms = online;
		d->most_ms = 2 * online;
		d->busy_factor = 16;
	}
	/*
	 * If the run does not use all CPUs of the processor, an idle one balances the upper domain, and moves workers to a CPU that
	 * they may use (LBF_DST_PINNED).
	 */
	if (level && sim->model.online_per_processor > used)
		d->busy_factor = 1;
	return online > 1;
}

/* Return whether the CPU affinity of any worker of a CPU includes the CPU `to` (LBF_ALL_PINNED in the kernel). */
static bool has_movable(const struct cpu *cpu, const struct cpu *to)
{
	if (cpu->curr && !is_rt(cpu->curr) && cpu->curr->on_rq && may_run(cpu->curr, to))
		return true;
	for (uint32_t i = 0; i < cpu->fair.length; i++)
		if (may_run(cpu->fair.queue[i], to))
			return true;
	return false;
}

/*
 * Find the group of a domain with the most runnable workers, and its CPU with the most runnable workers
 * (find_busiest_group(), find_busiest_queue()). Exclude CPUs whose workers may not run on `to` (load_balance() in fair.c tries
 * the next CPU). Return the number of workers to move, which is half of the difference between this group and the group of
 * `to`.
 */
static uint32_t imbalance(struct sim *sim, const struct cpu *to, const struct domain *d, struct cpu **from)
{
	uint32_t here = 0, most = 0;

	*from = NULL;
	for (uint32_t first = d->first; first < d->first + d->cpus; first += d->group) {
		struct cpu *found = NULL;
		uint32_t sum = 0;

		for (uint32_t i = first; i < first + d->group && i < d->first + d->cpus; i++) {
			struct cpu *cpu = &sim->cpus[i];

			sum += runnable(cpu);
			if (cpu->fair.length && (!found || runnable(cpu) > runnable(found)) &&
			    has_movable(cpu, to))
				found = cpu;
		}
		if (to->id >= first && to->id < first + d->group) {
			here = sum;
		} else if (found && sum > most) {
			most = sum;
			*from = found;
		}
	}
	return most > here ? (most - here) / 2 : 0;
}

/*
 * Move up to `n` queued workers between two CPUs (detach_tasks() in fair.c). Return how many moved. Begin with the worker that
 * joined the queue or ran least recently, but in Linux 3.2 with the worker that joined the queue most recently.
 */
static uint32_t take_from(struct sim *sim, struct cpu *to, struct cpu *from, const struct domain *d,
			  uint32_t n)
{
	const struct fair_class *fair = fair_of(sim);
	bool even_hot = d->state->failed > d->nice_tries, newest = sim->model.release == RELEASE_3_2;
	uint32_t moved = 0;

	while (moved < n) {
		struct worker *best = NULL;

		for (uint32_t i = 0; i < from->fair.length; i++) {
			struct worker *w = from->fair.queue[i];

			if (w->delayed || !may_run(w, to) || (!even_hot && is_hot(sim, from, to, w)))
				continue;
			if (!best || (newest ? w->queued_at > best->queued_at : w->used_at < best->used_at))
				best = w;
		}
		if (!best)
			break;
		fair->dequeue(sim, from, best, false);
		migrate(sim, best, to);
		fair->enqueue(sim, to, best, false);
		moved++;
	}
	return moved;
}

/*
 * Balance a domain of a CPU (load_balance() in fair.c). Return whether a worker moved. The intervals grow while the groups are
 * balanced.
 */
static bool balance(struct sim *sim, struct cpu *cpu, const struct domain *d, bool newly_idle)
{
	struct balance *state = d->state;
	struct cpu *from;
	uint32_t wanted = imbalance(sim, cpu, d, &from), moved;

	if (!wanted) {
		state->failed = 0;
		if (!newly_idle && state->interval_ms < d->most_ms)
			state->interval_ms *= 2;
		return false;
	}
	/* detach_tasks() of a kernel with CONFIG_PREEMPTION, as in Debian since Linux 6.1, moves one worker to a newly idle CPU */
	if (newly_idle && sim->model.release == RELEASE_6_1)
		wanted = 1;
	moved = take_from(sim, cpu, from, d, wanted);
	state->interval_ms = d->least_ms;
	if (moved)
		state->failed = 0;
	else
		state->failed += !newly_idle;
	return moved;
}

/* Move a waiting real-time worker to the CPU `to`, as pull_rt_task() in rt.c does. Return whether a worker moved. */
static bool take_rt(struct sim *sim, struct cpu *to)
{
	for (uint32_t i = 0; i < sim->model.cores; i++) {
		struct cpu *from = &sim->cpus[i];

		for (uint32_t j = 1; from != to && j < from->rt.length; j++) {
			struct worker *w = from->rt.queue[j];

			if (!may_run(w, to))
				continue;
			rt_dequeue(from, w);
			migrate(sim, w, to);
			rt_enqueue(to, w, false);
			return true;
		}
	}
	return false;
}

/*
 * Let a newly idle CPU take work from another CPU (kernel: newidle_balance() in fair.c, or idle_balance() of Linux
 * 3.2). Up to Linux 5.16, a CPU that is usually idle for less than the migration cost takes no work. From Linux 3.13
 * on, the search itself must be shorter than the usual idle time.
 */
bool placement_newidle(struct sim *sim, struct cpu *cpu)
{
	struct domain d;
	uint64_t spent = 0;

	/* the logger cannot leave a CPU of its own, and no worker may run there */
	if (sim->model.cores == 1 || !sim->model.placement || cpu->id >= sim->model.cores)
		return false;
	if (take_rt(sim, cpu))
		return true;
	cpu->idle_stamp = sim->now;
	if (sim->model.release != RELEASE_6_1 && cpu->average_idle < sim->model.migration_cost_ns)
		return false;
	for (uint32_t level = 0; level < LEVELS; level++) {
		uint64_t cost;

		if (!find_domain(sim, cpu, level, &d))
			continue;
		cost = domain_cost(sim, d.cpus);
		if (sim->model.release != RELEASE_3_2 && cpu->average_idle < spent + cost)
			return false;
		spent += cost;
		if (balance(sim, cpu, &d, true)) {
			cpu->idle_stamp = NEVER;
			return true;
		}
	}
	return false;
}

#define MS_NS 1000000

/* Return whether a CPU balances for its group: the first idle CPU of the group, or the first CPU (should_we_balance()). */
static bool balances(const struct sim *sim, const struct cpu *cpu, const struct domain *d)
{
	uint32_t first = cpu->id / d->group * d->group;

	for (uint32_t i = first; i < first + d->group && i < d->first + d->cpus; i++)
		if (is_idle(&sim->cpus[i]))
			return i == cpu->id;
	return cpu->id == first;
}

/* Balance the domains of a CPU whose interval is over (the kernel's rebalance_domains()). */
static void balance_domains(struct sim *sim, struct cpu *cpu)
{
	bool idle = is_idle(cpu);
	struct domain d;

	for (uint32_t level = 0; level < LEVELS; level++) {
		struct balance *state = &cpu->balance[level];
		uint64_t interval;

		if (!find_domain(sim, cpu, level, &d))
			continue;
		if (!state->interval_ms)
			state->interval_ms = d.least_ms;
		interval = (uint64_t)state->interval_ms * MS_NS * (idle ? 1 : d.busy_factor);
		if (sim->now < state->at + interval)
			continue;
		state->at = sim->now;
		if (!balances(sim, cpu, &d) || !balance(sim, cpu, &d, false))
			continue;
		/* the moved worker may preempt the running worker, as in the kernel's attach_task() in fair.c */
		if (!cpu->curr)
			sched_resched(sim, cpu);
		else if (!is_rt(cpu->curr))
			fair_of(sim)->wakeup_preempt(sim, cpu, cpu->fair.queue[cpu->fair.length - 1]);
	}
}

/* Balance work between CPUs at a tick (the kernel's trigger_load_balance(), and nohz_balancer_kick() for idle CPUs). */
void placement_tick(struct sim *sim, struct cpu *cpu)
{
	if (sim->model.cores == 1 || !sim->model.placement || cpu->id >= sim->model.cores)
		return;
	balance_domains(sim, cpu);
	if (sched_running(cpu) < 2)
		return;
	for (uint32_t i = 0; i < sim->model.cores; i++) {
		struct cpu *idle = &sim->cpus[i];

		if (!is_idle(idle))
			continue;
		balance_domains(sim, idle);
		sched_check(sim, idle);
	}
}
