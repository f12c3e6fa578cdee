/* SPDX-License-Identifier: MIT */
/*
 * A SIP proxy server under the Linux scheduler, as a discrete-event model.
 *
 *   agents.c     calls: who sends which message when, and the cause of each message
 *   cpu.c        the work of a CPU: receive softirq, stalls, a worker, nothing
 *   socket.c     the receive queues, the workers that wait at them, and the choice of a queue per message
 *   workers.c    the steps of a worker per message
 *   sched.c      the choice of the next worker; eevdf.c, cfs.c and rt.c have the rules of a class
 *   placement.c  the CPU of a woken worker, and work that CPUs take from each other
 *   switches.c   a run that compares modes: switching workers while they serve; plan.c reads the times
 *
 * Times are whole ns. On each CPU, the accounted times add up exactly to the duration of the run.
 */
#ifndef SIPSIM_SIM_H
#define SIPSIM_SIM_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "../common/calls.h"
#include "../common/schedule.h"
#include "../common/trace.h"
#include "events.h"
#include "model.h"
#include "switches.h"

#define NICE_0_WEIGHT 1024
#define T0_NS         1000000000 /* times of a record start here, because 0 in a record means unknown */

/* The uses of a CPU's time. */
enum spent {
	SPENT_IDLE,
	SPENT_TASK,
	SPENT_RECEIVE,
	SPENT_SWITCH,
	SPENT_STALL,
	SPENT_WAYS
};

/* The step of a worker's loop. A worker stops at the steps marked `event`, and passes through the others. */
enum phase {
	PHASE_TAKE,    /* event: looks into the socket's queue */
	PHASE_COPY,    /* receive call after the datagram was taken; ends at t_sip_in */
	PHASE_BEFORE,  /* service before the lock, or the whole service; ends at t_sip_out */
	PHASE_LOCK,    /* event: tries to take the lock */
	PHASE_SPIN,    /* event: has spun without success and yields */
	PHASE_HELD,    /* event: releases the lock */
	PHASE_AFTER,   /* service after the lock; ends at t_sip_out */
	PHASE_SEND,    /* event: the datagram departs; t_dep */
	PHASE_LOOP,    /* event: the worker receives again */
	PHASE_FORWARD, /* event: a front passes on its message */
	PHASE_SCRIPT,  /* event: has done the work from the script, and sleeps */
};

struct lock {
	struct worker *holder;
	struct worker **spinning;
	uint32_t n_spinning;
};

/* A worker or a front. */
struct worker {
	/* scheduling entity */
	int64_t vruntime, deadline, vprot, vlag;
	int64_t slice;
	uint64_t exec_start;                /* on the task clock of its CPU */
	uint64_t exec_sum, exec_sum_before; /* at the last pick; for CFS */
	uint64_t order; /* sequence number, set when enqueued; workers with equal keys run in this order */
	uint64_t rt_left_ns;
	uint32_t id;
	uint32_t cpu;
	uint32_t place; /* index in its run queue */
	uint32_t weight;
	enum policy policy;
	bool on_rq, delayed, relative_deadline, migrated;
	/* wake_wide() */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
	/* work */
	enum phase phase;
	uint64_t left_ns; /* rest of the phase */
	uint64_t before_ns, held_ns, after_ns;
	uint64_t cold_ns; /* for the next service, because another worker used the CPU's caches */
	uint64_t off_since;
	struct socket *socket;
	struct lock *lock;
	bool in_service, looked; /* looked: found the queue empty since it was woken */
	struct timer message;
	struct trace_record record;
	/* counts */
	uint64_t messages, switches, preemptions, wakeups, migrations, empty_receives, yields, ran_ns,
		spun_ns, charged_ns;
	uint64_t charged_from; /* on the task clock of its CPU */
};

/* The runnable workers of the fair class on a CPU, without the running one. */
struct fair_rq {
	struct worker **queue;
	uint32_t length;
	uint32_t delayed;   /* workers, queued or running, that sleep but still have lag */
	int64_t zero;       /* keys are vruntime - zero */
	int64_t key_sum;    /* of key * weight */
	int64_t weight_sum; /* over the queue */
	int64_t min_vruntime;
	struct worker *next, *last, *skip; /* CFS buddies */
};

struct rt_rq {
	struct worker **queue; /* first in, first out */
	uint32_t length;
};

struct cpu {
	struct worker *curr;
	const struct worker *warm; /* the worker that ran last */
	/* Overhead keeps curr from its work until then; its work is accounted up to this time. */
	uint64_t resume_at;
	uint64_t receive_until; /* end of the current receive softirq or stall */
	enum spent receiving;   /* whether it is a softirq or a stall */
	uint64_t idle_from;
	uint64_t irq_ns; /* time charged to no task, including the whole current entry */
	uint64_t next_tick;
	uint64_t next_stall;
	struct fifo raised;  /* datagrams whose interrupt comes at `at`, or together with the first one's */
	struct fifo backlog; /* softirqs and stalls; the first has begun and ends at `at` */
	struct fair_rq fair;
	struct rt_rq rt;
	bool need_resched;
	uint32_t id;
	uint64_t spent[SPENT_WAYS];
	/* newidle_balance() */
	uint64_t idle_stamp, average_idle, last_balance;
	uint32_t balance_failed;
	/* the idle task, for wake_wide() */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
};

struct socket {
	struct fifo queue; /* `at` is the time of queueing */
	uint64_t charged;  /* sk_rmem_alloc */
	uint64_t deficit;  /* read, and not given back yet */
	uint32_t reader;   /* part of the queue that was moved to the reader's side */
	struct worker **waiters;
	uint32_t room, first_waiter, n_waiters;
	uint64_t chosen; /* number of messages that chose this socket */
};

/* A TCP connection. Connection 0 belongs to the UAS. */
struct connection {
	struct worker *holder; /* NULL: the front watches the connection */
	uint64_t last;         /* time of its last message */
	struct fifo unread;    /* messages that came while no worker held the connection */
};

struct call {
	struct call_record record;
	uint64_t uas_ack_at; /* 0: none */
	bool uas_answered, uas_sent_ok;
};

struct counts {
	uint64_t events, sent[KINDS], sent_again[KINDS], arrived, received, refused, left, datagrams_sent;
	uint64_t overtaken, wakeups, idle_wakeups, passed;
	uint64_t k_rcv_ns, t_sip_ns;                          /* summed over all messages that departed */
	uint64_t received_kind[KINDS], received_again[KINDS]; /* by the agents */
};

#define TIMER_LENGTHS 8 /* T1, 2 T1, ... 64 T1, and T2 */

struct sim {
	struct model model;
	uint64_t now, end, last_event;
	bool over; /* the agents send nothing more */
	struct tree tree;
	struct schedule schedule;
	struct call *calls;
	uint64_t next_call, open_calls;
	struct fifo soon, ring, hold, timers[TIMER_LENGTHS];
	struct heap held; /* calls with a random hold time */
	uint64_t service_seed;
	struct socket *sockets;     /* the workers' sockets, then those of the fronts */
	struct worker *workers;     /* the workers, then the fronts */
	uint32_t n_workers;         /* includes the fronts */
	struct lock *locks;         /* one per instance */
	uint32_t *connections_held; /* by worker */
	struct connection *connections;
	struct cpu *cpus;
	uint64_t order;
	uint64_t *stall_states;
	double service_mu[KINDS], service_sigma[KINDS];
	struct counts counts;
	struct switches switches;
	const char *failure; /* why the run cannot continue */
	FILE *trace;
	/* for tests: a script instead of calls, and the record of who ran when */
	const struct script *script;
	uint32_t script_length, script_next;
	void (*switched)(struct sim *, const struct cpu *, const struct worker *next);
	void *observer;
};

/* A worker wakes at this time with this much work, and sleeps when the work is done. */
struct script {
	uint64_t at;
	uint32_t worker;
	uint64_t work_ns;
};

enum source {
	SOURCE_CALLS,
	SOURCE_SOON,
	SOURCE_RING,
	SOURCE_HOLD,
	SOURCE_TIMERS,
	SOURCE_SCRIPT = SOURCE_TIMERS + TIMER_LENGTHS,
	SOURCE_SWITCHES,
	SOURCE_CPUS
};

/* sim.c; returns NULL, or a static text that describes the problem */
const char *sim_init(struct sim *sim, const struct model *model);
/* Run until all calls have ended and the SPS is empty. */
const char *sim_run(struct sim *sim);
void sim_free(struct sim *sim);

/* agents.c */
void agents_call(struct sim *sim);
void agents_timer(struct sim *sim, enum source source);
void agents_receive(struct sim *sim, const struct timer *message);
void agents_set(struct sim *sim);

/* cpu.c */
void cpu_init(struct sim *sim, struct cpu *cpu);
void cpu_packet(struct sim *sim, struct timer message);
void cpu_event(struct sim *sim, struct cpu *cpu);
/* Account for the running worker's work until now. */
void cpu_advance(struct sim *sim, struct cpu *cpu);
/* Keep the CPU from all other work for this time. */
void cpu_stall(struct sim *sim, struct cpu *cpu, uint64_t ns);
/* Account for the CPU's time until now, so that the sum of its parts is now. */
void cpu_spent(const struct sim *sim, const struct cpu *cpu, uint64_t spent[SPENT_WAYS]);
/* Set the time of the CPU's next event. */
void cpu_set(struct sim *sim, struct cpu *cpu);
uint64_t cpu_task_clock(const struct sim *sim, const struct cpu *cpu);

/* socket.c */
bool sockets_init(struct sim *sim);
void sockets_free(struct sim *sim);
/* Pass an arrived message to the fronts or to a socket. Return the number of woken workers. */
uint32_t socket_deliver(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* Pass on a front's message to the workers. */
void socket_forward(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* End the connection of a call, if the call has its own. */
void socket_close(struct sim *sim, uint32_t call);
bool socket_take(struct sim *sim, struct worker *w);
void socket_wait(struct worker *w);

/* workers.c */
static inline bool is_front(const struct sim *sim, const struct worker *w)
{
	return w->id >= sim->model.workers;
}

void worker_event(struct sim *sim, struct cpu *cpu);
void worker_pass(struct sim *sim, struct worker *w, uint64_t at);
uint64_t worker_span(const struct sim *sim, const struct worker *w);
bool phase_is_event(const struct sim *sim, const struct worker *w);
void worker_resumes(struct worker *w);
uint64_t service_time(struct sim *sim, const struct timer *message);

/* trace.c */
void trace_open(struct sim *sim, FILE *file);
void trace_message(struct sim *sim, const struct worker *w);
void trace_drop(struct sim *sim, const struct cpu *cpu, const struct timer *message);
uint64_t call_hash(uint64_t call);
#endif
