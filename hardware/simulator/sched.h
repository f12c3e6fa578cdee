/* SPDX-License-Identifier: MIT */
/*
 * Chooses the worker that runs. Names and files of the kernel are those of Linux 6.18 for EEVDF and of Linux 5.10 for CFS:
 * kernel/sched/fair.c, core.c, rt.c. Not modelled: task groups, bandwidth, PELT loads (balancing counts workers),
 * core scheduling, hyper-threads, HRTICK.
 */
#ifndef SIPSIM_SCHED_H
#define SIPSIM_SCHED_H
#include "sim.h"

/* core.c: try_to_wake_up(). The softirq of the CPU `waker` wakes; NULL if no CPU of the SPS does. */
void sched_wake(struct sim *sim, struct worker *w, struct cpu *waker);
/* core.c: __schedule(). The running worker sleeps from now on. */
void sched_sleep(struct sim *sim, struct cpu *cpu);
/* syscalls.c: __sched_setscheduler(). Policy, nice value and slice become those of sim->model. */
void sched_set(struct sim *sim, struct worker *w);
void sched_yield_curr(struct sim *sim, struct cpu *cpu);
void sched_tick(struct sim *sim, struct cpu *cpu);
void sched_resched(struct sim *sim, struct cpu *cpu);
/* Reschedule if that was requested and no softirq runs. */
void sched_check(struct sim *sim, struct cpu *cpu);
uint32_t sched_running(const struct cpu *cpu); /* rq->nr_running */
/* Return a worker's CPU time until now, which is the kernel's sum_exec_runtime. */
uint64_t sched_charged(const struct sim *sim, const struct worker *w);
uint32_t sched_weight(int nice);
bool is_rt(const struct worker *w);

/* fair.c: calc_delta_fair() */
static inline int64_t fair_delta(int64_t delta, const struct worker *w)
{
	return w->weight == NICE_0_WEIGHT ? delta : delta * NICE_0_WEIGHT / (int64_t)w->weight;
}

/* The queue of both fair classes. */
void fair_add(struct fair_rq *rq, struct worker *w, uint64_t order);
void fair_remove(struct fair_rq *rq, struct worker *w);
void fair_update(struct sim *sim, struct cpu *cpu, int64_t *delta);

struct fair_class {
	void (*enqueue)(struct sim *, struct cpu *, struct worker *, bool wakeup);
	/* returns false if the worker sleeps but stays queued */
	bool (*dequeue)(struct sim *, struct cpu *, struct worker *, bool sleep);
	void (*requeue_delayed)(struct sim *, struct cpu *, struct worker *);
	void (*put)(struct sim *, struct cpu *, struct worker *);
	/* returns the next worker, which stays queued unless it runs already */
	struct worker *(*pick)(struct sim *, struct cpu *);
	void (*set_next)(struct sim *, struct cpu *, struct worker *);
	void (*wakeup_preempt)(struct sim *, struct cpu *, struct worker *);
	void (*tick)(struct sim *, struct cpu *);
	void (*yield)(struct sim *, struct cpu *);
	void (*update_curr)(struct sim *, struct cpu *);
	/* for a worker that is not queued */
	void (*set_weight)(struct worker *, uint32_t weight);
	/* for a sleeper whose class changes */
	void (*join)(struct sim *, struct cpu *, struct worker *);
	void (*leave)(struct sim *, struct cpu *, struct worker *);
};
extern const struct fair_class EEVDF, CFS;
const struct fair_class *fair_of(const struct sim *sim);
int64_t eevdf_average(const struct cpu *cpu);

/* rt.c */
void rt_enqueue(struct cpu *cpu, struct worker *w, bool head);
void rt_dequeue(struct cpu *cpu, struct worker *w);

/* placement.c */
struct cpu *placement_select(struct sim *sim, struct worker *w, struct cpu *waker);
void placement_idle_ended(struct sim *sim, struct cpu *cpu);
bool placement_newidle(struct sim *sim, struct cpu *cpu); /* returns whether it took a worker */
void placement_tick(struct sim *sim, struct cpu *cpu);
#endif
