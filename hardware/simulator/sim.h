/* SPDX-License-Identifier: MIT */
/*
 * A SIP proxy server under the Linux scheduler, as a discrete-event model.
 *
 *   agents.c     calls: when the UAC and the UAS send which message
 *   cpu.c        the work of a CPU: softirqs, stalls and workers
 *   socket.c     the receive queues, the workers that wait at them, and the choice of a queue per message
 *   workers.c    the steps of a worker per message
 *   sched.c      the choice of the next worker; eevdf.c, cfs.c and rt.c have the rules of a class
 *   competitors.c other programs on the CPUs
 *   placement.c  the CPU of a woken worker, and balancing of work between CPUs
 *   switches.c   a run that compares modes: switching workers while they serve; plan.c reads the plan
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
/* The timestamp in records for time 0 of the simulation. The timestamp is not 0, because 0 means unknown. */
#define T0_NS 1000000000

/* The uses of a CPU's time. */
enum spent {
	SPENT_IDLE,
	SPENT_TASK,
	SPENT_RECEIVE,
	SPENT_SWITCH,
	SPENT_STALL,
	SPENT_WAYS
};

/*
 * The step of a worker's loop. The end of a step marked `event` is an event of the simulation. The end of another step
 * only begins the next step, and may set a timestamp.
 */
enum phase {
	PHASE_TAKE,   /* event: the worker looks into the socket's queue */
	PHASE_COPY,   /* rest of the receive call after the datagram was taken; ends at t_sip_in */
	PHASE_BEFORE, /* service before the lock; without a lock, the whole service, which ends at t_sip_out */
	PHASE_LOCK,   /* event: the worker tries to take the lock */
	PHASE_SPIN,   /* event: the worker has spun without success and yields */
	PHASE_HELD,   /* event: the worker releases the lock */
	PHASE_AFTER,  /* service after the lock; ends at t_sip_out */
	PHASE_SEND,   /* event: the datagram departs at t_dep */
	PHASE_LOOP,   /* event: the worker receives again */
	PHASE_FORWARD, /* event: a front passes on its message */
	PHASE_LOG,     /* event: at t_sip_in, the worker passes its message to the logger */
	PHASE_COMPETE, /* event: a competitor has done its work */
	PHASE_SCRIPT,  /* event: the worker has done work from a test's script, and sleeps */
};

struct lock {
	struct worker *holder;
	struct worker **spinning;
	uint32_t n_spinning;
};

/* A worker of the proxy, a front that passes on messages, or another program. */
struct worker {
	/* members for the scheduler */
	int64_t vruntime, deadline, vprot, vlag;
	int64_t slice;
	uint64_t exec_start;                /* CPU time is accounted up to this time of cpu_task_clock() */
	uint64_t exec_sum, exec_sum_before; /* CPU time now, and CPU time when CFS last picked the worker */
	/* Sequence number of the moment of queueing. Workers with equal vruntime or deadline run in this order. */
	uint64_t order;
	/* Sequence numbers of the moments when the worker last became runnable on its CPU, and last began to run or became runnable. */
	uint64_t queued_at, used_at;
	uint64_t rt_left_ns;
	uint32_t id;
	uint32_t cpu;
	uint32_t place; /* index of the worker in its run queue */
	uint32_t weight;
	uint32_t first_cpu, cpus; /* the CPUs on which the worker may run */
	enum policy policy;
	bool on_rq, delayed, relative_deadline, migrated;
	/* members for wake_wide() */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
	/* members for the worker's work */
	enum phase phase;
	uint64_t left_ns; /* CPU time that is left in the phase */
	uint64_t before_ns, held_ns, after_ns;
	/* Additional time of the next service, because another worker has displaced this worker's cache lines. */
	uint64_t cold_ns;
	uint64_t off_since;
	struct socket *socket;
	struct lock *lock;
	bool in_service, looked; /* looked: the worker has found the queue empty since its last wake-up */
	struct timer message;
	struct trace_record record;
	/* the worker's counters */
	uint64_t messages, switches, preemptions, wakeups, migrations, empty_receives, yields, ran_ns,
		spun_ns, charged_ns;
	uint64_t transfers;    /* messages before which a worker on another CPU used the socket */
	uint64_t begin_ns;     /* a competitor's current or next period begins at this time */
	uint64_t charged_from; /* `charged_ns` counts up to this time of cpu_task_clock() */
};

/* The runnable workers of the fair class on a CPU, without the running worker. */
struct fair_rq {
	struct worker **queue;
	uint32_t length;
	uint32_t delayed;   /* number of sleeping workers that stay queued until their EEVDF lag is gone */
	int64_t zero;       /* the key of a worker is its vruntime - zero */
	int64_t key_sum;    /* sum of key * weight over the queue */
	int64_t weight_sum; /* sum of the weights over the queue */
	int64_t min_vruntime;
	struct worker *next, *last, *skip; /* the workers that CFS prefers (next, last) or avoids (skip) */
};

struct rt_rq {
	struct worker **queue; /* the worker that was queued first comes first */
	uint32_t length;
};

#define LEVELS 2 /* scheduling domains of a CPU: its processor, and all processors */

/* A CPU's state for one of its scheduling domains. */
struct balance {
	uint64_t at; /* time of the last balancing */
	uint32_t interval_ms, failed;
};

struct cpu {
	struct worker *curr;
	const struct worker *warm; /* the worker that ran last on this CPU */
	/* All workers that have run on this CPU. The worker that ran last comes first. Empty if refill_doubling_ns is 0. */
	const struct worker **recent;
	uint32_t n_recent;
	/*
	 * `curr` continues its work at this time, after switches and softirqs. Work before this time is already
	 * accounted.
	 */
	uint64_t resume_at;
	uint64_t receive_until; /* end of the current receive softirq or stall */
	enum spent receiving;   /* kind of that softirq or stall: SPENT_RECEIVE or SPENT_STALL */
	uint64_t idle_from;
	/*
	 * Time of softirqs and stalls that is charged to no task. Each softirq or stall counts completely from its
	 * start on.
	 */
	uint64_t irq_ns;
	uint64_t next_tick;
	uint64_t next_stall;
	/*
	 * Datagrams whose interrupt has not yet occurred. The interrupt of a datagram will occur at the datagram's time
	 * `at`. If the interrupt of another datagram occurs earlier, this earlier interrupt also handles these
	 * datagrams.
	 */
	struct fifo raised;
	struct fifo backlog; /* softirqs and stalls in order; the first one runs now, until its time `at` */
	struct fair_rq fair;
	struct rt_rq rt;
	bool need_resched;
	uint32_t id;
	uint64_t spent[SPENT_WAYS];
	/* members for newidle_balance() */
	uint64_t idle_stamp, average_idle;
	struct balance balance[LEVELS];
	/* members for wake_wide(): the idle task is the waker if a softirq of an idle CPU wakes a worker */
	uint64_t flips_at;
	uint32_t flips, last_wakee;
};

struct socket {
	struct fifo queue;     /* waiting messages; `at` is the time of queueing */
	uint64_t charged;      /* bytes charged to the buffer (the kernel's sk_rmem_alloc) */
	uint64_t deficit;      /* memory of read messages that the socket has not released yet */
	uint32_t reader;       /* number of messages that were moved to the reader's part of the queue */
	uint64_t buffer_bytes; /* limit of `charged` */
	struct worker **waiters;
	uint32_t room, first_waiter, n_waiters;
	uint64_t chosen;        /* number of messages for which this socket was chosen */
	uint64_t locked_until;  /* time when the last worker or softirq that asked for the lock releases it */
	const struct cpu *user; /* CPU of the last worker that received from the socket; NULL: none yet */
};

/* A TCP connection. Connection 0 belongs to the UAS. */
struct connection {
	struct worker *holder; /* the worker that reads the connection; NULL: the front watches it */
	uint64_t last;         /* time of its last message */
	struct fifo unread;    /* messages that came while no worker held the connection */
};

/* Messages that wait for the logger, and workers that wait for room in this queue. */
struct log_queue {
	uint32_t length;
	struct worker **blocked; /* ring buffer with room for all workers */
	uint32_t first_blocked, n_blocked;
};

struct call {
	struct call_record record;
	uint64_t uas_ack_at; /* time of the ACK; 0 without ACK */
	bool uas_answered, uas_sent_ok;
};

struct counts {
	uint64_t events, sent[KINDS], sent_again[KINDS], arrived, received, refused, left, datagrams_sent;
	uint64_t overtaken, wakeups, idle_wakeups, passed;
	uint64_t k_rcv_ns, t_sip_ns; /* sums of K_rcv and T_sip over all messages that departed */
	/* Numbers of messages that the agents received. */
	uint64_t received_kind[KINDS], received_again[KINDS];
};

#define TIMER_LENGTHS 8 /* number of timer lengths: T1, 2 T1, 4 T1, ... 64 T1, and T2 */

struct sim {
	struct model model;
	uint64_t now, end, last_event;
	bool over; /* true: the agents send no more messages */
	struct tree tree;
	struct schedule schedule;
	struct call *calls;
	uint64_t next_call, open_calls;
	struct fifo soon, ring, hold, timers[TIMER_LENGTHS];
	struct heap held; /* calls with a random hold time */
	uint64_t service_seed;
	struct socket *sockets; /* the workers' sockets, followed by the fronts' sockets */
	struct worker *workers; /* the workers, followed by the fronts and the other programs */
	uint32_t n_workers;     /* number of workers, including the fronts */
	uint32_t
		n_others; /* number of other programs: the competitors, the logger and the programs with bursts */
	struct worker *logger; /* NULL: none */
	struct worker *bursts; /* the programs with bursts of work, one per CPU; NULL: none */
	struct log_queue log_queue;
	struct lock *locks;         /* one lock per instance */
	uint32_t *connections_held; /* number of held connections per worker */
	struct connection *connections;
	struct cpu *cpus; /* the CPUs of the workers, followed by CPUs that only receive */
	uint32_t n_cpus;
	uint64_t order;
	uint64_t *stall_states, *burst_states;
	double service_mu[KINDS], service_sigma[KINDS];
	struct counts counts;
	struct switches switches;
	const char *failure; /* reason why the run cannot continue; NULL if it can */
	FILE *trace;
	const char *replayed; /* path of a schedule whose calls replace sampled calls; NULL: sample calls */
	/* for tests: a script instead of calls, and a function that records which worker runs when */
	const struct script *script;
	uint32_t script_length, script_next;
	uint64_t script_end; /* end of the script; competitors run until this time */
	void (*switched)(struct sim *, const struct cpu *, const struct worker *next);
	void *observer;
};

/* A line of a test's script: a worker wakes at this time with this much work, and sleeps when the work is done. */
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

/* Functions of sim.c follow. */
/* Prepare a run. Return NULL on success, or a static text that describes the problem. */
const char *sim_init(struct sim *sim, const struct model *model);
/* Run until all calls have ended and no message is left in the SPS. */
const char *sim_run(struct sim *sim);
void sim_free(struct sim *sim);

/* Functions of agents.c follow. */
void agents_call(struct sim *sim);
void agents_timer(struct sim *sim, enum source source);
void agents_receive(struct sim *sim, const struct timer *message);
void agents_set(struct sim *sim);

/* Functions of cpu.c follow. */
void cpu_init(struct sim *sim, struct cpu *cpu);
void cpu_packet(struct sim *sim, struct timer message);
void cpu_event(struct sim *sim, struct cpu *cpu);
/* Account for the running worker's work until now. */
void cpu_advance(struct sim *sim, struct cpu *cpu);
/* Stall the CPU for `ns`, so that the CPU does no other work meanwhile. */
void cpu_stall(struct sim *sim, struct cpu *cpu, uint64_t ns);
/* Store in `spent` how the CPU has spent its time until now. The uses add up to the time since the start. */
void cpu_spent(const struct sim *sim, const struct cpu *cpu, uint64_t spent[SPENT_WAYS]);
/* Set the time of the CPU's next event. */
void cpu_set(struct sim *sim, struct cpu *cpu);
uint64_t cpu_task_clock(const struct sim *sim, const struct cpu *cpu);

/* Functions of socket.c follow. */
bool sockets_init(struct sim *sim);
void sockets_free(struct sim *sim);
/*
 * Pass an arrived message to the fronts or to a socket. Return the time that the softirq then needs for the socket's
 * lock and for waking workers.
 */
uint64_t socket_deliver(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* Pass a front's message on to the workers. */
void socket_forward(struct sim *sim, struct cpu *cpu, const struct timer *message);
/* End the connection of a call, if the call has its own connection. */
void socket_close(struct sim *sim, uint32_t call);
bool socket_take(struct sim *sim, struct worker *w);
void socket_wait(struct worker *w);

/* Functions of workers.c follow. */
static inline bool is_front(const struct sim *sim, const struct worker *w)
{
	return w->id >= sim->model.workers && w->id < sim->n_workers;
}

void worker_event(struct sim *sim, struct cpu *cpu);
void worker_pass(struct sim *sim, struct worker *w, uint64_t at);
uint64_t worker_span(const struct sim *sim, const struct worker *w);
bool phase_is_event(const struct sim *sim, const struct worker *w);
void worker_resumes(struct worker *w);
uint64_t service_time(struct sim *sim, const struct timer *message);

/* Functions of competitors.c follow. */
/* Prepare the competitors, the logger and the programs with bursts. Take random numbers from `state`. */
void competitors_init(struct sim *sim, uint64_t *state);
/* Wake the competitor, or program with bursts, with the number `number`, because its next work begins now. */
void competitor_event(struct sim *sim, uint32_t number);
/* End a competitor's work, and begin or schedule its next work. Return whether the competitor continues now. */
bool competitor_step(struct sim *sim, struct cpu *cpu, struct worker *w);
/* Pass a worker's log line to the logger. Return false if the worker waits, because the logger's queue is full. */
bool competitor_log(struct sim *sim, struct cpu *cpu, struct worker *sender);

/* Functions of trace.c follow. */
void trace_open(struct sim *sim, FILE *file);
void trace_message(struct sim *sim, const struct worker *w);
void trace_drop(struct sim *sim, const struct cpu *cpu, const struct timer *message);
uint64_t call_hash(uint64_t call);
#endif
