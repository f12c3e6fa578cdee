/* SPDX-License-Identifier: MIT */
/*
 * Functions that choose the worker of a CPU. Comments name the functions and files of the kernel: Linux 6.18 for EEVDF, and
 * Linux 5.10 for CFS. The files are kernel/sched/fair.c, core.c and rt.c. The model has no task groups, no bandwidth
 * control, no PELT loads (balancing counts workers), no core scheduling, no hyper-threads and no HRTICK.
 */
#ifndef SIPSIM_SCHED_H
#define SIPSIM_SCHED_H
#include "sim.h"

/*
 * Wake a worker and choose its CPU, as the kernel's try_to_wake_up() in core.c does. `waker` is the CPU whose softirq wakes
 * the worker, or NULL if no CPU of the SPS does.
 */
void sched_wake(struct sim *sim, struct worker *w, struct cpu *waker);
/* Let the running worker sleep, and choose the next worker of the CPU (the kernel's __schedule() in core.c). */
void sched_sleep(struct sim *sim, struct cpu *cpu);
/*
 * Set a worker's policy, nice value and slice to the values of sim->model, as the kernel's __sched_setscheduler() in
 * syscalls.c does.
 */
void sched_set(struct sim *sim, struct worker *w);
void sched_yield_curr(struct sim *sim, struct cpu *cpu);
void sched_tick(struct sim *sim, struct cpu *cpu);
void sched_resched(struct sim *sim, struct cpu *cpu);
/* Reschedule if a reschedule was requested and no softirq runs. */
void sched_check(struct sim *sim, struct cpu *cpu);
uint32_t sched_running(const struct cpu *cpu); /* number of runnable workers, the kernel's nr_running */
/* Return a worker's CPU time until now, as the kernel's sum_exec_runtime. */
uint64_t sched_charged(const struct sim *sim, const struct worker *w);
uint32_t sched_weight(int nice);
bool is_rt(const struct worker *w);

/* Convert CPU time to virtual time: time / weight, and unchanged at nice 0 (the kernel's calc_delta_fair()). */
static inline int64_t fair_delta(int64_t delta, const struct worker *w)
{
	return w->weight == NICE_0_WEIGHT ? delta : delta * NICE_0_WEIGHT / (int64_t)w->weight;
}

/* Functions for the queue of the fair class, which EEVDF and CFS share. */
void fair_add(struct fair_rq *rq, struct worker *w, uint64_t order);
void fair_remove(struct fair_rq *rq, struct worker *w);
void fair_update(struct sim *sim, struct cpu *cpu, int64_t *delta);

struct fair_class {
	void (*enqueue)(struct sim *, struct cpu *, struct worker *, bool wakeup);
	/* returns false if the worker sleeps but stays in the queue */
	bool (*dequeue)(struct sim *, struct cpu *, struct worker *, bool sleep);
	void (*requeue_delayed)(struct sim *, struct cpu *, struct worker *);
	void (*put)(struct sim *, struct cpu *, struct worker *);
	/* returns the next worker and leaves it in the queue; the running worker is not in the queue */
	struct worker *(*pick)(struct sim *, struct cpu *);
	void (*set_next)(struct sim *, struct cpu *, struct worker *);
	void (*wakeup_preempt)(struct sim *, struct cpu *, struct worker *);
	void (*tick)(struct sim *, struct cpu *);
	void (*yield)(struct sim *, struct cpu *);
	void (*update_curr)(struct sim *, struct cpu *);
	/* called for a worker that is not queued */
	void (*set_weight)(struct worker *, uint32_t weight);
	/* called for a sleeping worker that moves between this class and the real-time class */
	void (*join)(struct sim *, struct cpu *, struct worker *);
	void (*leave)(struct sim *, struct cpu *, struct worker *);
};
extern const struct fair_class EEVDF, CFS;
const struct fair_class *fair_of(const struct sim *sim);
int64_t eevdf_average(const struct cpu *cpu);

/* functions of rt.c */
void rt_enqueue(struct cpu *cpu, struct worker *w, bool head);
void rt_dequeue(struct cpu *cpu, struct worker *w);

/* functions of placement.c */
struct cpu *placement_select(struct sim *sim, struct worker *w, struct cpu *waker);
void placement_idle_ended(struct sim *sim, struct cpu *cpu);
bool placement_newidle(struct sim *sim, struct cpu *cpu); /* returns whether the CPU took a worker */
void placement_tick(struct sim *sim, struct cpu *cpu);
#endif
