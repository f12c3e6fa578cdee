/* SPDX-License-Identifier: MIT */
/*
 * A SIP proxy server under the Linux scheduler, as a discrete-event model.
 *
 *   agents.c     calls: who sends what when, and what was caused by what
 *   cpu.c        what a CPU does: receive softirq, stalls, a worker, nothing
 *   socket.c     the receive queues, who waits at them, and which one a message goes to
 *   workers.c    a worker's way through a message
 *   sched.c      which worker runs; eevdf.c, cfs.c, rt.c the rules of a class
 *   placement.c  on which CPU a woken worker goes, and what CPUs take from each other
 *   switches.c   a run that compares modes: workers switched while they serve; plan.c reads when
 *
 * Instants and spans are whole ns. Spans are accounted so that on each CPU they add up to the run exactly.
 */
#ifndef SIPSIM_SIM_H
#define SIPSIM_SIM_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "../generator/calls.h"
#include "../generator/schedule.h"
#include "../probe/trace.h"
#include "events.h"
#include "model.h"
#include "switches.h"

#define NICE_0_WEIGHT 1024
#define T0_NS         1000000000 /* of a record's instants: 0 in them means that there was none */

/* What a CPU's time goes to. */
enum spent {
	SPENT_IDLE,
	SPENT_TASK,
	SPENT_RECEIVE,
	SPENT_SWITCH,
	SPENT_STALL,
	SPENT_WAYS
};

/* Where a worker is in its loop. What ends at an event is marked: the rest is passed on the way. */
enum phase {
	PHASE_TAKE,    /* event: looks into the socket queue */
	PHASE_COPY,    /* recv after the datagram was taken; t_sip_in at its end */
	PHASE_BEFORE,  /* service before the lock, or all of it; t_sip_out at its end */
	PHASE_LOCK,    /* event: wants the lock */
	PHASE_SPIN,    /* event: has spun in vain and yields */
	PHASE_HELD,    /* event: releases the lock */
	PHASE_AFTER,   /* service after the lock; t_sip_out at its end */
	PHASE_SEND,    /* event: the datagram leaves; t_dep */
	PHASE_LOOP,    /* event: receives again */
	PHASE_FORWARD, /* event: a front passes on what it took */
	PHASE_SCRIPT,  /* event: has done what the script gave it, and sleeps */
};

struct lock {
	struct worker *holder;
	struct worker **spinning;
	uint32_t n_spinning;
};

/* One that serves, or a front. */
struct worker {
	/* scheduling entity */
	int64_t vruntime, deadline, vprot, vlag;
	int64_t slice;
	uint64_t exec_start;                /* on its CPU's task clock */
	uint64_t exec_sum, exec_sum_before; /* when it was picked last: CFS */
	uint64_t order;                     /* of its enqueueing: equals are served in this order */
	uint64_t rt_left_ns;
	uint32_t id;
	uint32_t cpu;
	uint32_t place; /* in its run queue */
	uint32_t weight;
	enum policy policy;
	bool on_rq, delayed, relative_deadline, migrated;
	/* wake_wide() */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
	/* work */
	enum phase phase;
	uint64_t left_ns; /* of the phase */
	uint64_t before_ns, held_ns, after_ns;
	uint64_t cold_ns; /* of the next service: another worker had the CPU's caches */
	uint64_t off_since;
	struct socket *socket;
	struct lock *lock;
	bool in_service, looked; /* looked: found the queue empty since it was woken */
	struct timer message;
	struct trace_record record;
	/* counts */
	uint64_t messages, switches, preemptions, wakeups, migrations, empty_receives, yields, ran_ns,
		spun_ns, charged_ns;
	uint64_t charged_from; /* on its CPU's task clock */
};

/* Runnable workers of a CPU of the fair class, without the one that runs. */
struct fair_rq {
	struct worker **queue;
	uint32_t length;
	uint32_t delayed;   /* of them, or running: sleep, but have lag to lose */
	int64_t zero;       /* keys are vruntime - zero */
	int64_t key_sum;    /* of key * weight */
	int64_t weight_sum; /* of the queue */
	int64_t min_vruntime;
	struct worker *next, *last, *skip; /* CFS buddies */
};

struct rt_rq {
	struct worker **queue; /* first in, first out */
	uint32_t length;
};

struct cpu {
	struct worker *curr;
	const struct worker *warm; /* who ran last */
	uint64_t resume_at; /* until when overhead keeps curr from its work; its work is done up to here */
	uint64_t receive_until; /* the receive softirq or stall that has begun ends here */
	enum spent receiving;   /* which it is */
	uint64_t idle_from;
	uint64_t irq_ns; /* that is charged to no task, what has begun counted whole */
	uint64_t next_tick;
	uint64_t next_stall;
	struct fifo raised;  /* datagrams whose interrupt comes at `at`, or with the first of them */
	struct fifo backlog; /* softirqs and stalls; the first has begun and ends at `at` */
	struct fair_rq fair;
	struct rt_rq rt;
	bool need_resched;
	uint32_t id;
	uint64_t spent[SPENT_WAYS];
	/* newidle_balance() */
	uint64_t idle_stamp, average_idle, last_balance;
	uint32_t balance_failed;
	/* the idle task in wake_wide() */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
};

struct socket {
	struct fifo queue; /* `at` is when it was queued */
	uint64_t charged;  /* sk_rmem_alloc */
	uint64_t deficit;  /* read, not given back yet */
	uint32_t reader;   /* of the queue, spliced to the reader's side */
	struct worker **waiters;
	uint32_t room, first_waiter, n_waiters;
	uint64_t chosen; /* so many messages were for it */
};

/* A stream. Connection 0 is that of the UAS. */
struct connection {
	struct worker *holder; /* NULL: the front watches it */
	uint64_t last;         /* when its last message came */
	struct fifo unread;    /* came while nobody held it */
};

struct call {
	struct call_record record;
	uint64_t uas_ack_at; /* 0: none */
	bool uas_answered, uas_sent_ok;
};

struct counts {
	uint64_t events, sent[KINDS], sent_again[KINDS], arrived, received, refused, left, datagrams_sent;
	uint64_t overtaken, wakeups, idle_wakeups, passed;
	uint64_t k_rcv_ns, t_sip_ns;                          /* of all messages that left */
	uint64_t received_kind[KINDS], received_again[KINDS]; /* by the agents */
};

#define TIMER_LENGTHS 8 /* T1, 2 T1, ... 64 T1, and T2 */

struct sim {
	struct model model;
	uint64_t now, end, last_event;
	bool over; /* agents send no more */
	struct tree tree;
	struct schedule schedule;
	struct call *calls;
	uint64_t next_call, open_calls;
	struct fifo soon, ring, hold, timers[TIMER_LENGTHS];
	struct heap held; /* hold, if its length is drawn */
	uint64_t service_seed;
	struct socket *sockets;     /* and that of the fronts after them */
	struct worker *workers;     /* and the fronts after them */
	uint32_t n_workers;         /* with the fronts */
	struct lock *locks;         /* one an instance */
	uint32_t *connections_held; /* by worker */
	struct connection *connections;
	struct cpu *cpus;
	uint64_t order;
	uint64_t *stall_states;
	double service_mu[KINDS], service_sigma[KINDS];
	struct counts counts;
	struct switches switches;
	const char *failure; /* why the run cannot go on */
	FILE *trace;
	/* tests: what is done in place of calls, and who ran when */
	const struct script *script;
	uint32_t script_length, script_next;
	void (*switched)(struct sim *, const struct cpu *, const struct worker *next);
	void *observer;
};

/* A worker wakes at an instant with so much to do; it sleeps when it is done. */
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

/* sim.c; NULL, or what is wrong, as a static text */
const char *sim_init(struct sim *sim, const struct model *model);
/* Run to the end: the calls are over and nothing is left in the SPS. */
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
/* Bring the work of the running worker up to now. */
void cpu_advance(struct sim *sim, struct cpu *cpu);
/* Keep it from all else for so long. */
void cpu_stall(struct sim *sim, struct cpu *cpu, uint64_t ns);
/* What its time went to up to now; the sum is now. */
void cpu_spent(const struct sim *sim, const struct cpu *cpu, uint64_t spent[SPENT_WAYS]);
/* Say when this CPU's next event is. */
void cpu_set(struct sim *sim, struct cpu *cpu);
uint64_t cpu_task_clock(const struct sim *sim, const struct cpu *cpu);

/* socket.c */
bool sockets_init(struct sim *sim);
void sockets_free(struct sim *sim);
/* A message that has arrived: to the fronts, or to its workers' socket. How many were woken. */
uint32_t socket_deliver(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* What a front has done with a message. */
void socket_forward(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* The call is over, and so is its connection if it has one of its own. */
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
