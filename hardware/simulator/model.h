/* SPDX-License-Identifier: MIT */
/*
 * The numbers of a model: a text of lines `name = value`, as src/sipsched/measure/simulation.py writes it.
 * Every name of the table in model.c has to be there once, and no other.
 */
#ifndef SIPSIM_MODEL_H
#define SIPSIM_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KINDS       7 /* of trace.h: OTHER, INVITE, 180, 200, ACK, BYE, 200 */
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
	bool answered; /* the UAS answers; else a call is one INVITE, as queueing theory has it */
	uint64_t ring_ns, hold_ns, drain_ns, t1_ns, t2_ns;
	/* machine */
	uint32_t cores, cores_per_processor, receive_cpus;
	uint64_t link_ns, interrupt_ns, receive_ns, wake_ns, switch_ns, idle_exit_ns, tick_ns;
	uint64_t refill_ns, refill_near_ns, refill_far_ns, balance_ns;
	uint64_t stall_every_ns, stall_ns; /* means of exponential times; 0: no stalls */
	/* softirqs are not charged to the task that they interrupt */
	bool irq_time_accounting;
	/* socket */
	uint64_t receive_buffer_bytes, truesize[KINDS];
	enum queue_rule queue_rule;
	bool deferred_release, wake_all;
	uint32_t length[KINDS];
	/* proxy */
	uint32_t workers;
	uint64_t copy_ns, send_ns, loop_ns, empty_receive_ns;
	bool trying; /* answers INVITE with 100: one more datagram sent */
	enum service_law service_law;
	double service_ns[KINDS], service_scv[KINDS];
	double lock_share; /* of the service time that needs the shared lock */
	uint64_t spin_ns, yield_ns;
	/* scheduler */
	enum rules rules;
	enum policy policy;
	int nice;
	bool placement; /* a woken worker may go to another CPU, and CPUs take work from each other */
	uint64_t slice_ns, base_slice_ns;
	bool place_lag, run_to_parity, preempt_short, delay_dequeue;
	uint64_t latency_ns, min_granularity_ns, wakeup_granularity_ns, nr_latency;
	uint64_t migration_cost_ns;
	/* bound */
	uint64_t events_max;
};

/* False: there is no such name, or it may not have this value. */
bool model_set(struct model *model, const char *name, const char *value);
/* NULL, or what is wrong, in `error`. */
const char *model_parse(struct model *model, const char *text, char *error, size_t size);
const char *model_read(struct model *model, const char *path, char *error, size_t size);
#endif
