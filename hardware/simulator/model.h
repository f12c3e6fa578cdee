/* SPDX-License-Identifier: MIT */
/*
 * The parameters of a model. src/sipsched/measure/simulated_point.py writes them as lines `name = value`. The text of a
 * model must contain each name of the table in model.c exactly once, and no other name.
 */
#ifndef SIPSIM_MODEL_H
#define SIPSIM_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KINDS           7 /* number of message kinds in trace.h; 200 of INVITE and 200 of BYE are two kinds */
#define CPUS_MAX        256
#define WORKERS_MAX     1024
#define COMPETITORS_MAX 16
#define COMPARED_MAX    32
#define IDLE_WEIGHT     3 /* weight of SCHED_IDLE: WEIGHT_IDLEPRIO in kernel/sched/sched.h */

enum rules {
	RULES_EEVDF,
	RULES_CFS
};
enum policy {
	POLICY_OTHER,
	POLICY_BATCH,
	POLICY_FIFO,
	POLICY_RR,
	POLICY_IDLE /* only competitors have this policy */
};
enum queue_rule {
	QUEUE_UNTIL_OVER,
	QUEUE_WITHIN
};
enum choice {
	CHOICE_CALL,
	CHOICE_CONNECTION,
	CHOICE_HOLDER
};
enum release {
	RELEASE_3_2,
	RELEASE_5_10,
	RELEASE_6_1
};
enum service_law {
	LAW_CONSTANT,
	LAW_EXPONENTIAL,
	LAW_LOGNORMAL
};

struct model {
	/* members that describe the load */
	double rate_cps;
	uint64_t calls, seed;
	bool constant_arrivals, retransmissions, hold_exponential;
	bool answered; /* true: the UAS answers; false: a call is only one message (INVITE) */
	uint64_t ring_ns, hold_ns, drain_ns, t1_ns, t2_ns;
	/* An answered call is late if its 200 takes longer than setup_limit_ns plus the ring time. */
	uint64_t setup_limit_ns;
	/* members that describe the machine */
	uint32_t cores, cores_per_processor;
	/* Numbers of online CPUs, if some are online that the run does not use. 0: all online CPUs are used. */
	uint32_t online, online_per_processor;
	bool numa; /* each processor is a NUMA node */
	/*
	 * `receive_cpus` CPUs run the receive softirqs; the first is `receive_first_cpu`, and `receive_step` is the distance between
	 * two of them. A CPU with the number `cores` or a larger number only receives, because the workers use the first `cores` CPUs
	 */
	uint32_t receive_cpus, receive_first_cpu, receive_step;
	/* Number of addresses per agent, which calls use in turn. The datagrams from one address form a flow (cpu.c). */
	uint32_t peers;
	uint64_t link_ns, interrupt_ns, receive_ns, wake_ns, switch_ns, idle_exit_ns, tick_ns;
	uint64_t refill_ns, refill_near_ns, refill_far_ns, balance_ns;
	/*
	 * further time to refill the caches, per doubling of 1 + N; N is the number of other workers and other programs that
	 * have run on this CPU since the worker last ran on this CPU
	 */
	uint64_t refill_doubling_ns;
	uint64_t stall_every_ns, stall_ns; /* means of exponentially distributed times; 0: no stalls */
	/* true: the kernel accounts the time of softirqs separately from the interrupted task */
	bool irq_time_accounting;
	/* members that describe the socket */
	uint64_t receive_buffer_bytes, truesize[KINDS];
	enum queue_rule queue_rule;
	bool deferred_release, wake_all;
	/* time for which the softirq, or a receiving worker, holds the lock of the queue */
	uint64_t socket_lock_ns;
	/* additional time per message if a worker on another CPU received the socket's previous message */
	uint64_t transfer_ns;
	/*
	 * members that describe the deployment: several sockets share the port, each with its own workers; `choice` is the
	 * rule that chooses a message's socket: by Call-ID, by connection, or by the worker that holds the connection
	 */
	uint32_t sockets;
	enum choice choice;
	uint64_t dispatch_ns; /* time that the softirq needs to choose a socket */
	bool streams;         /* true: TCP, so a full buffer delays a sent message instead of refusing it */
	uint64_t stream_ns;   /* TCP: additional time to receive a message */
	uint32_t connections; /* connections of the UAC, which calls use in turn; 0: one per call */
	uint32_t instances;   /* instances of the proxy; workers of different instances share no lock */
	/*
	 * members for a run that compares instances: each has its own socket, and the schedule names the instance of a call.
	 * The lists have one number per instance: its workers, its CPUs from the first one on, and its receive buffer
	 */
	uint32_t
		compared; /* number of instances, equal to `sockets` and `instances`; 0: the run compares none */
	uint32_t compared_workers[COMPARED_MAX], compared_cores[COMPARED_MAX];
	uint64_t compared_buffer_bytes[COMPARED_MAX];
	/*
	 * number of front-end processes; they pass every message to the workers or, if workers hold connections, they
	 * pass the connections that no worker holds
	 */
	uint32_t fronts;
	uint64_t front_ns; /* total time that a front needs per message or connection */
	uint64_t keep_ns;  /* a worker holds a connection for this time after its last message */
	uint32_t length[KINDS];
	/* members that describe the proxy */
	uint32_t workers;
	uint64_t copy_ns, send_ns, loop_ns, empty_receive_ns;
	bool trying; /* the proxy answers INVITE with 100, which is one more datagram */
	enum service_law service_law;
	double service_ns[KINDS], service_scv[KINDS];
	double lock_share; /* share of the service time during which the worker holds the shared lock */
	uint64_t spin_ns, yield_ns;
	/* members that describe the scheduler */
	enum rules rules;
	enum policy policy;
	int nice;
	bool placement; /* true: a woken worker may change its CPU, and CPUs take work from each other */
	uint64_t slice_ns, base_slice_ns;
	bool place_lag, run_to_parity, preempt_short, delay_dequeue;
	uint64_t latency_ns, min_granularity_ns, wakeup_granularity_ns, nr_latency;
	uint64_t migration_cost_ns;
	/* the release of Linux decides when a newly idle CPU takes work, and how short a slice of CFS may be */
	enum release release;
	/*
	 * members that describe other programs on the CPUs; each list has one number per competitor. A competitor computes
	 * for `work` in every `period`, or all the time if `period` is 0
	 */
	uint32_t competitors;
	uint64_t competitor_period_ns[COMPETITORS_MAX], competitor_work_ns[COMPETITORS_MAX];
	enum policy competitor_policy[COMPETITORS_MAX];
	int competitor_nice[COMPETITORS_MAX]; /* without effect with a real-time policy or SCHED_IDLE */
	/* a competitor may run on `competitor_cpus` neighbouring CPUs; the first is `competitor_first_cpu` */
	uint32_t competitor_first_cpu[COMPETITORS_MAX], competitor_cpus[COMPETITORS_MAX];
	uint64_t competitor_slice_ns;
	/*
	 * mean distance and mean length of the bursts of work of one further program per CPU; both are exponentially
	 * distributed, and the program stays on its CPU as a kernel thread does; 0: no such programs
	 */
	uint64_t burst_every_ns, burst_ns;
	uint32_t burst_weight; /* the weight of its nice value */
	uint64_t logger_ns;    /* work of a further program, the logger, per message; 0: no logger */
	uint32_t logger_queue; /* number of messages that the logger's queue holds; 0: any number */
	bool logger_apart;     /* the logger runs on a CPU of its own, which follows the proxy's CPUs */
	/* members that limit the run */
	uint64_t events_max;
};

/* Set a parameter of the model. Return false if the name is unknown or the value is not allowed. */
bool model_set(struct model *model, const char *name, const char *value);
/* Read a model. Return NULL on success, or `error` with a text that describes the problem. */
const char *model_parse(struct model *model, const char *text, char *error, size_t size);
const char *model_read(struct model *model, const char *path, char *error, size_t size);
#endif
