/* SPDX-License-Identifier: MIT */
/*
 * libsipvirtual.so: virtual time for a stock QEMU 7.2 whose emulated CPUs (vCPUs) have a thread each.
 *
 *   LD_PRELOAD=./libsipvirtual.so qemu-system-x86_64 -plugin ./libsipvirtual.so,mips=7000 ...
 *
 * One file has two roles. As a plugin, the file counts the instructions of each vCPU. As a preloaded library, the file
 * replaces the functions by which QEMU reads clocks, waits for events, and puts a halted vCPU to sleep.
 *
 * Virtual time advances in quanta. In a quantum, each running vCPU executes the same number of instructions, and then waits for
 * the others. The end of a quantum does not wait for halted vCPUs. When all vCPUs are halted, virtual time advances to
 * the next timer. Other work of the host makes the guest slower in real time, but does not change the results.
 */
#ifndef SIPSCHED_VIRTUAL_H
#define SIPSCHED_VIRTUAL_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_CPUS 64
#define FOREVER  INT64_MAX
/* The library counts sixteenths of instructions, because a kernel instruction may count as a fraction of a user one. */
#define PARTS 16
/* Mark of the functions that are visible outside the library. QEMU calls each of them by its name. */
#define EXPORT __attribute__((visibility("default")))
/* Mark of functions that patched code of QEMU calls. The patch does not save vector registers, so do not use them. */
#define NO_VECTORS __attribute__((target("general-regs-only")))

struct settings {
	double mips;          /* million instructions per second of each vCPU */
	double kernel_weight; /* time of a kernel instruction, relative to a user instruction */
	double idle_rate; /* seconds of virtual time per real second while all vCPUs are halted; 0: no limit */
	int64_t quantum_ns;
	int64_t wake_ns; /* virtual time that a halted vCPU needs to wake up */
};

/* Counters that another process may read at any time. All counters are in host byte order. */
struct statistics {
	char magic[8];
	uint64_t virtual_ns;
	uint64_t quanta;
	uint64_t awaited;  /* number of quanta whose end had to wait for QEMU's main loop */
	uint64_t given_up; /* number of waits for the main loop that reached their time limit; must be 0 */
	uint64_t
		early; /* number of times that the main loop stopped waiting while virtual time stood still */
	uint64_t halts;   /* number of times that a vCPU went to sleep */
	uint64_t parked;  /* number of times that a vCPU waited for the end of a quantum */
	uint64_t idle_ns; /* real time during which all vCPUs were halted */
};
#define STATISTICS_MAGIC "sipvirt1"

/* A bell, by which a thread waits for an event (quantum.c). */
struct bell {
	_Atomic uint32_t word;
	unsigned waiting;
};

struct cpu {
	_Alignas(128) int64_t
		left; /* parts of instructions that are left in this quantum; a negative rest reduces the next quantum */
	int64_t length;            /* length of this quantum, in parts of instructions */
	int64_t spent;             /* the part of `length` that had passed when the vCPU woke up */
	pthread_cond_t *condition; /* the condition on which the vCPU sleeps; NULL while it runs */
	struct bell bell;          /* rings when `condition` is NULL again */
	bool known;
	bool halting; /* true: the guest halted this vCPU; false: QEMU makes it wait for other vCPUs */
};

extern struct cpu cpus[MAX_CPUS];
extern struct statistics *statistics;
extern struct settings settings;
/* The vCPU that this thread emulates, or NULL in threads that emulate no vCPU. */
extern __thread struct cpu *self;
/* True in the thread that runs QEMU's main loop. */
extern __thread bool is_main;

/* ---- quantum.c ---- */

/* Compute the length of a quantum from `settings`. */
void start_clock(void);
/* Return the virtual time in ns, which is never earlier than a time that any thread has read before. */
NO_VECTORS int64_t now_ns(void);
/* Return whether a vCPU has run. Until then, QEMU uses the real functions of libc. */
bool clock_runs(void);
/* Wait until all running vCPUs are at the end of the quantum. The calling vCPU has no instructions left. */
void finish_quantum(struct cpu *cpu);
/* Sleep until another thread calls wake_cpus() with the same condition of QEMU. The caller holds the mutex. */
void sleep_cpu(pthread_cond_t *condition, pthread_mutex_t *mutex);
/* Wake the vCPUs that sleep on a condition. */
void wake_cpus(pthread_cond_t *condition);

/*
 * Record that the main loop has handled all events, and that its next timer is due at `deadline_ns`. Return whether all vCPUs
 * are halted.
 */
bool main_rests(int64_t deadline_ns);
/* Continue the main loop after a wait of `real_ns`. If all vCPUs were halted, advance the virtual time. */
void main_goes_on(bool was_idle, bool timed_out, int64_t real_ns);
/* Return how long in real time the main loop waits for its next timer while all vCPUs are halted. */
int64_t idle_rest_ns(int64_t ahead_ns);
/* Record that a vCPU has a request for the main loop. */
void ask_main(void);
/* Clear the requests of vCPUs, because the main loop handles them now. */
void main_looks(void);
bool main_is_asked(void);
/* Record whether the main loop sleeps until a vCPU wakes it. */
void main_sleeps(bool sleeps);
/* Return the descriptor that becomes readable when the main loop must continue. */
int main_descriptor(void);

int64_t real_ns(int clock);

/* ---- patch.c ---- */

/* Replace QEMU's inlined reads of the time stamp counter by calls of now_ns(). Return the number of these reads. */
int patch_counter_reads(void);
#endif
