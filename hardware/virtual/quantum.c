// SPDX-License-Identifier: MIT
/* The quanta of virtual time: in each quantum, every running vCPU executes the same number of instructions. */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "virtual.h"

#define GIVE_UP_LOOKS 1000
#define LOOK_NS       5000000
#define MOST_SAVED_NS 1000000000
#define EARLIEST_NS   1000000000 /* first virtual time; not 0, because QEMU treats a clock of 0 as unset */

struct cpu cpus[MAX_CPUS];
__thread struct cpu *self;
__thread bool is_main;

static struct statistics unread;
struct statistics *statistics = &unread;
struct settings settings = { .mips = 2000, .kernel_weight = 1, .idle_rate = 1, .quantum_ns = 5000 };

/*
 * This lock protects all variables below, and the vCPUs except for `left` and `length`, which only the vCPU's
 * thread uses.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static unsigned running; /* number of vCPUs that run in this quantum */
static unsigned arrived; /* number of running vCPUs that have executed all instructions of this quantum */
static bool ending;      /* true: a vCPU ends the quantum, so no other vCPU may start to run */
static uint64_t quantum; /* number of the current quantum */
static int64_t length, full_length, parts_per_us;
static int64_t ns_per_part; /* duration of 1 / PARTS of an instruction, in 2^-32 ns */
static uint64_t fraction;   /* fraction of a ns to add to quantum_start, in 2^-32 ns */
static _Atomic int64_t quantum_start = EARLIEST_NS, latest = EARLIEST_NS;

static struct bell quantum_bell; /* wakes vCPUs that wait for the end of the quantum */
static struct bell main_bell;    /* wakes the vCPU that waits for QEMU's main loop */

static struct {
	bool rests;       /* true: the main loop waits for events */
	bool sleeps;      /* true: the main loop waits for vCPUs */
	int64_t deadline; /* virtual time of the main loop's next timer */
	int64_t saved_ns; /* virtual time that earn_idle_time() allows to pass while all vCPUs are halted */
	int descriptor;
	_Atomic bool asked;
} loop = { .deadline = FOREVER, .descriptor = -1 };

/*
 * A thread waits until a bell's word changes. The thread reads the word while it holds the lock, and every event
 * changes the word under the lock. An event between this read and the futex call therefore ends the wait at once, so no
 * wake-up is lost.
 */
static void ring(struct bell *bell, int threads)
{
	atomic_fetch_add(&bell->word, 1);
	if (bell->waiting)
		syscall(SYS_futex, &bell->word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static void await(struct bell *bell, const struct timespec *limit)
{
	uint32_t seen = atomic_load(&bell->word);

	bell->waiting++;
	pthread_mutex_unlock(&lock);
	syscall(SYS_futex, &bell->word, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
	pthread_mutex_lock(&lock);
	bell->waiting--;
}

static void ring_main(void)
{
	uint64_t one = 1;

	/* use the system call, because this library replaces write() and would call itself */
	syscall(SYS_write, loop.descriptor, &one, sizeof(one));
}

void start_clock(void)
{
	double parts_per_ns = settings.mips / 1000 * PARTS;

	ns_per_part = (int64_t)((double)(1LL << 32) / parts_per_ns);
	parts_per_us = (int64_t)(parts_per_ns * 1000);
	length = full_length = settings.quantum_ns * parts_per_us / 1000;
	loop.descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

bool clock_runs(void)
{
	return started;
}

NO_VECTORS int64_t now_ns(void)
{
	int64_t now = quantum_start, seen = latest;

	if (self)
		now += (self->length - self->left) * ns_per_part >> 32;
	while (now > seen)
		if (atomic_compare_exchange_weak(&latest, &seen, now))
			return now;
	return seen;
}

int64_t real_ns(int clock)
{
	struct timespec time;

	syscall(SYS_clock_gettime, clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* ---- the end of a quantum ---- */

static bool main_is_due(void)
{
	return loop.asked || quantum_start >= loop.deadline;
}

/*
 * Wait until the main loop has handled its timers and the requests of vCPUs. Do not wait while the main loop itself waits for
 * vCPUs. The main loop may also wait in a way that this library cannot observe, so a limit ends the wait. The limit is
 * a number of checks instead of a time, so that a QEMU that is stopped by a signal does not reach the limit.
 */
static void await_main(void)
{
	static const struct timespec look = { .tv_nsec = LOOK_NS };
	int looks = 0;

	if (loop.rests && !main_is_due())
		return;
	statistics->awaited++;
	if (loop.rests)
		ring_main();
	while (!(loop.rests && !main_is_due()) && !loop.sleeps) {
		if (++looks > GIVE_UP_LOOKS) {
			statistics->given_up++;
			loop.asked = false;
			return;
		}
		await(&main_bell, &look);
	}
}

/* End the quantum and begin the next one. The caller holds `lock`, and this vCPU holds no lock of QEMU. */
static void end_quantum(void)
{
	int64_t until;

	ending = true;
	arrived = 0;
	fraction += (uint64_t)(length * ns_per_part);
	quantum_start += (int64_t)(fraction >> 32);
	fraction &= UINT32_MAX;
	statistics->virtual_ns = (uint64_t)quantum_start;
	statistics->quanta++;
	await_main();
	/*
	 * end the next quantum at the main loop's next timer, so that the timer is not late, but make the quantum at
	 * least an eighth of its full length
	 */
	length = full_length;
	until = loop.deadline - quantum_start;
	if (loop.deadline != FOREVER && until < settings.quantum_ns)
		length = until * 8 > settings.quantum_ns ? until * parts_per_us / 1000 : full_length / 8;
	quantum++;
	ending = false;
	ring(&quantum_bell, INT_MAX);
}

/*
 * Let a vCPU run for the rest of this quantum, of which the part `spent` has already passed. The caller holds `lock`.
 */
static void join(struct cpu *cpu)
{
	while (ending)
		await(&quantum_bell, NULL);
	cpu->length = length;
	cpu->left = length - cpu->spent;
}

void finish_quantum(struct cpu *cpu)
{
	pthread_mutex_lock(&lock);
	if (!cpu->known) {
		cpu->known = started = true;
		self = cpu;
		while (ending)
			await(&quantum_bell, NULL);
		running++;
		join(cpu);
	}
	while (cpu->left < 0) {
		uint64_t mine = quantum;

		arrived++;
		while (quantum == mine) {
			if (!ending && arrived == running) {
				end_quantum();
				break;
			}
			statistics->parked++;
			await(&quantum_bell, NULL);
		}
		cpu->length = length;
		cpu->left += length;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- sleeping vCPUs ---- */

void sleep_cpu(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	pthread_mutex_lock(&lock);
	self->condition = condition;
	running--;
	statistics->halts++;
	if (!running)
		/* wake the main loop: all vCPUs are halted, so virtual time may advance to its next timer */
		ring_main();
	else if (arrived == running && !ending)
		ring(&quantum_bell,
		     1); /* let another vCPU end the quantum, because this vCPU holds QEMU's lock */
	pthread_mutex_unlock(mutex);
	/* wait for the bell and not for QEMU's condition, whose signal may come before the wait and would be missed */
	while (self->condition)
		await(&self->bell, NULL);
	join(self);
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(mutex);
}

void wake_cpus(pthread_cond_t *condition)
{
	if (!started)
		return;
	pthread_mutex_lock(&lock);
	for (struct cpu *cpu = cpus; cpu < cpus + MAX_CPUS; cpu++) {
		if (!cpu->known || cpu->condition != condition)
			continue;
		cpu->condition = NULL;
		/*
		 * the woken vCPU joins the quantum at the position of the vCPU that calls this function, or at the
		 * start if another thread calls this function
		 */
		cpu->spent = !self ? 0 : self->left > 0 ? self->length - self->left : self->length;
		if (cpu->halting)
			cpu->spent += settings.wake_ns * parts_per_us / 1000;
		running++;
		ring(&cpu->bell, 1);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- the main loop ---- */

int main_descriptor(void)
{
	return loop.descriptor;
}

void ask_main(void)
{
	loop.asked = true;
}

void main_looks(void)
{
	loop.asked = false;
}

bool main_is_asked(void)
{
	return loop.asked;
}

/*
 * Return the virtual time that may pass now while all vCPUs are halted. Each real second adds `idle_rate` seconds to
 * this virtual time, even while vCPUs run. If a wait of the main loop lasts longer than requested, the next waits are
 * shorter. Only the main loop calls this function.
 */
static int64_t earn_idle_time(void)
{
	static int64_t earned_until;
	int64_t now = real_ns(CLOCK_MONOTONIC);

	if (earned_until)
		loop.saved_ns += (int64_t)((double)(now - earned_until) * settings.idle_rate);
	earned_until = now;
	if (loop.saved_ns > MOST_SAVED_NS)
		loop.saved_ns = MOST_SAVED_NS;
	return loop.saved_ns;
}

int64_t idle_rest_ns(int64_t ahead_ns)
{
	int64_t missing = ahead_ns - earn_idle_time();

	return missing > 0 ? (int64_t)((double)missing / settings.idle_rate) : 0;
}

bool main_rests(int64_t deadline_ns)
{
	uint64_t rings;
	bool idle;

	pthread_mutex_lock(&lock);
	if (read(loop.descriptor, &rings, sizeof(rings)) < 0)
		rings = 0; /* no bell has rung */
	loop.deadline = deadline_ns;
	loop.rests = true;
	idle = running == 0;
	ring(&main_bell, 1);
	pthread_mutex_unlock(&lock);
	return idle;
}

void main_goes_on(bool was_idle, bool timed_out, int64_t real_ns)
{
	pthread_mutex_lock(&lock);
	loop.rests = false;
	if (was_idle && !running) {
		int64_t to = quantum_start + (int64_t)((double)real_ns * settings.idle_rate);

		statistics->idle_ns += (uint64_t)real_ns;
		if (to > loop.deadline || (timed_out && loop.deadline != FOREVER))
			to = loop.deadline;
		if (to > quantum_start) {
			loop.saved_ns -= to - quantum_start;
			quantum_start = to;
		}
		statistics->virtual_ns = (uint64_t)quantum_start;
		length = full_length;
	}
	loop.deadline = FOREVER;
	pthread_mutex_unlock(&lock);
}

void main_sleeps(bool sleeps)
{
	pthread_mutex_lock(&lock);
	loop.sleeps = sleeps;
	ring(&main_bell, 1);
	pthread_mutex_unlock(&lock);
}
