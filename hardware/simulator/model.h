/* SPDX-License-Identifier: MIT */
/*
 * The numbers of a model: a text of lines `name = value`, which src/sipsched/measure/simulated_point.py writes.
 * The text must have each name of the table in model.c exactly once, and no other name.
 */
#ifndef SIPSIM_MODEL_H
#define SIPSIM_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KINDS       7 /* kinds of trace.h: OTHER, INVITE, 180, 200, ACK, BYE, 200 */
#define CPUS_MAX    256
#define WORKERS_MAX 1024

enum rules {
	RULES_EEVDF,
	RULES_CFS
};
enum policy {
	POLICY_OTHER,
	POLICY_BATCH,
	POLICY_FIFO,
	POLICY_RR
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
enum service_law {
	LAW_CONSTANT,
	LAW_EXPONENTIAL,
	LAW_LOGNORMAL
};

struct model {
	/* load */
	double rate_cps;
	uint64_t calls, seed;
	bool constant_arrivals, retransmissions, hold_exponential;
	bool answered; /* the UAS answers; otherwise a call is one INVITE, as in queueing theory */
	uint64_t ring_ns, hold_ns, drain_ns, t1_ns, t2_ns;
	/* An answered call is late if its 200 takes longer than this and the ring time. */
	uint64_t setup_limit_ns;
	/* machine */
	uint32_t cores, cores_per_processor, receive_cpus;
	uint32_t peers; /* addresses per agent, which calls use in turn; each is a flow per direction */
	uint64_t link_ns, interrupt_ns, receive_ns, wake_ns, switch_ns, idle_exit_ns, tick_ns;
	uint64_t refill_ns, refill_near_ns, refill_far_ns, balance_ns;
	uint64_t stall_every_ns, stall_ns; /* means of exponential times; 0: no stalls */
	/* softirqs are not charged to the interrupted task */
	bool irq_time_accounting;
	/* socket */
	uint64_t receive_buffer_bytes, truesize[KINDS];
	enum queue_rule queue_rule;
	bool deferred_release, wake_all;
	/*
	 * deployment: sockets that share the port, each with its own workers. A message's socket is chosen by
	 * Call-ID, by connection, or as the socket of the worker that holds the connection
	 */
	uint32_t sockets;
	enum choice choice;
	uint64_t dispatch_ns; /* time of the softirq to choose a socket */
	bool streams;         /* TCP: a sent message may wait and is never refused */
	uint64_t stream_ns;   /* TCP: additional time to receive a message */
	uint32_t connections; /* connections of the UAC, which calls use in turn; 0: one per call */
	uint32_t instances;   /* instances of the proxy; workers of different instances share no lock */
	/*
	 * processes before the workers, which pass on every message, or, where workers hold connections, the
	 * connections that no worker holds
	 */
	uint32_t fronts;
	uint64_t front_ns; /* total time per message or connection */
	uint64_t keep_ns;  /* how long a worker holds a connection after its last message */
	uint32_t length[KINDS];
	/* proxy */
	uint32_t workers;
	uint64_t copy_ns, send_ns, loop_ns, empty_receive_ns;
	bool trying; /* answers INVITE with 100, so one more datagram is sent */
	enum service_law service_law;
	double service_ns[KINDS], service_scv[KINDS];
	double lock_share; /* share of the service time that needs the shared lock */
	uint64_t spin_ns, yield_ns;
	/* scheduler */
	enum rules rules;
	enum policy policy;
	int nice;
	bool placement; /* a woken worker may move to another CPU, and CPUs take work from each other */
	uint64_t slice_ns, base_slice_ns;
	bool place_lag, run_to_parity, preempt_short, delay_dequeue;
	uint64_t latency_ns, min_granularity_ns, wakeup_granularity_ns, nr_latency;
	uint64_t migration_cost_ns;
	/* limits */
	uint64_t events_max;
};

/* Set a number. Return false if the name is unknown or the value is not allowed. */
bool model_set(struct model *model, const char *name, const char *value);
/* Read a model. Return NULL, or a text in `error` that describes the problem. */
const char *model_parse(struct model *model, const char *text, char *error, size_t size);
const char *model_read(struct model *model, const char *path, char *error, size_t size);
#endif
