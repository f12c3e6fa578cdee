// SPDX-License-Identifier: MIT
/*
 * virtualcheck tests the virtual time of the guest in which it is the only program. virtualcheck runs as process 1,
 * prints one line of JSON, and ends QEMU.
 *
 *   loop_ns, loop_exact_ns   time of a loop with a known number of instructions, and the exact time
 *   speeds                   loops per us of each CPU while all CPUs are busy, and of CPU 0 alone as the first number
 *   wait_ns, theory_ns       mean wait of messages for several workers on one socket, and the computed wait of the same arrivals
 *   in a queue with constant service
 *
 * The kernel's command line has the setting mips=NUMBER, which the kernel puts into the environment.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../common/clock.h"

#define MAX_CPUS 64
#define LOOP_OPS 2 /* instructions of one loop */
#define BLOCKS   20
#define BLOCK_NS 1000000
#define SERVICE_NS \
	400000 /* a worker's time per message; the delivery is far shorter and hardly changes the wait */
#define LOAD        0.8
#define FILLING     200 /* number of messages from which the service time is measured */
#define MESSAGES    1000
#define PORT        5555
#define QUEUE_BYTES (8 << 20)
#define SETTLE_NS   20000000
#define BOOTED_NS   10000000000 /* after the boot, kernel threads still use the CPUs for some seconds */
#define END         (-1)

static double loops_per_us;

static void spin(uint64_t loops)
{
	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(loops) : : "cc");
}

static void die(const char *what)
{
	printf("virtualcheck: {\"error\": \"%s\"}\n", what);
	fflush(stdout);
	reboot(RB_AUTOBOOT);
}

static void pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("cannot pin a thread to a CPU");
}

static void sleep_until(uint64_t ns)
{
	struct timespec time = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

/* Return the median time of a block of loops. The kernel's tick makes some blocks longer. */
static uint64_t block_ns(uint64_t loops)
{
	uint64_t times[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		uint64_t start = clock_ns();

		spin(loops);
		times[i] = clock_ns() - start;
	}
	qsort(times, BLOCKS, sizeof(*times), compare);
	return times[BLOCKS / 2];
}

/* ---- equal speed ---- */

static struct {
	pthread_t thread;
	pthread_barrier_t *all;
	uint64_t ns;
	int cpu;
} spinners[MAX_CPUS];

static void *spin_there(void *argument)
{
	uint64_t loops = (uint64_t)(loops_per_us * BLOCK_NS / 1000);
	int i = (int)(intptr_t)argument;

	pin(spinners[i].cpu);
	pthread_barrier_wait(spinners[i].all);
	spinners[i].ns = block_ns(loops);
	pthread_barrier_wait(spinners[i].all);
	return NULL;
}

static void print_speeds(int cpus)
{
	uint64_t loops = (uint64_t)(loops_per_us * BLOCK_NS / 1000);
	pthread_barrier_t all;

	pthread_barrier_init(&all, NULL, (unsigned)cpus);
	printf("\"speeds\": [%.3f", (double)loops * 1000 / (double)block_ns(loops));
	for (int i = 0; i < cpus; i++) {
		spinners[i].cpu = i;
		spinners[i].all = &all;
		if (pthread_create(&spinners[i].thread, NULL, spin_there, (void *)(intptr_t)i))
			die("cannot create a thread");
	}
	for (int i = 0; i < cpus; i++) {
		pthread_join(spinners[i].thread, NULL);
		printf(", %.3f", (double)loops * 1000 / (double)spinners[i].ns);
	}
	printf("], ");
}

/* ---- a queue with constant service ---- */

static uint64_t *arrived, *done; /* shared with the workers */

static void work(int fd, int cpu)
{
	uint64_t loops = (uint64_t)(loops_per_us * SERVICE_NS / 1000);
	int message;

	pin(cpu);
	while (recv(fd, &message, sizeof(message), 0) == sizeof(message) && message != END) {
		spin(loops);
		done[message] = clock_ns();
	}
	_exit(0);
}

static void send_message(int fd, int message)
{
	arrived[message] = clock_ns();
	if (send(fd, &message, sizeof(message), 0) != sizeof(message))
		die("cannot send a datagram");
}

/*
 * Compute two mean waits of `count` messages from index `first`: the measured wait, and the wait predicted from the
 * arrivals.
 */
static void mean_waits(int first, int count, int workers, double service, double *measured, double *computed)
{
	double free_at[MAX_CPUS] = { 0 };

	*measured = *computed = 0;
	for (int i = first; i < first + count; i++) {
		double at = (double)(arrived[i] - arrived[first]), start;
		int next = 0;

		for (int j = 1; j < workers; j++)
			if (free_at[j] < free_at[next])
				next = j;
		start = free_at[next] > at ? free_at[next] : at;
		free_at[next] = start + service;
		*computed += (start - at) / count;
		*measured += ((double)(done[i] - arrived[i]) - service) / count;
	}
}

static void print_waits(int workers)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	size_t bytes = 2 * (FILLING + MESSAGES) * sizeof(uint64_t);
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0),
	    queue = QUEUE_BYTES;
	double measured, computed, service, at;
	int sent = workers * FILLING / 2, last = sent + MESSAGES;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	arrived = mmap(NULL, bytes * MAX_CPUS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	done = arrived + last;
	if (ioctl(server, SIOCSIFFLAGS, &loopback) ||
	    setsockopt(server, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof(queue)) ||
	    bind(server, (struct sockaddr *)&address, sizeof(address)) ||
	    connect(client, (struct sockaddr *)&address, sizeof(address)))
		die("cannot open a socket");
	for (int i = 0; i < workers; i++)
		if (!fork())
			work(server, i);
	pin(workers);
	sleep_until(clock_ns() + SETTLE_NS);
	for (int i = 0; i < sent; i++)
		send_message(client, i);
	while (!done[sent - 1] || !done[sent - 2])
		sleep_until(clock_ns() + SETTLE_NS);
	/* exclude the first and last messages, because not all workers were busy during their service */
	qsort(done, (size_t)sent, sizeof(*done), compare);
	service = (double)(done[sent - 1 - workers] - done[workers - 1]) * workers / (sent - 2 * workers);
	srand48(1);
	at = (double)clock_ns() + SETTLE_NS;
	for (int i = sent; i < last; i++) {
		at -= log1p(-drand48()) * service / workers / LOAD;
		sleep_until((uint64_t)at);
		send_message(client, i);
	}
	sleep_until(clock_ns() + SETTLE_NS);
	for (int i = 0; i < workers; i++)
		send(client, &(int){ END }, sizeof(int), 0);
	while (wait(NULL) > 0)
		;
	mean_waits(sent, MESSAGES, workers, service, &measured, &computed);
	printf("\"workers\": %d, \"service_ns\": %.0f, \"wait_ns\": %.0f, \"theory_ns\": %.0f}\n", workers,
	       service, measured, computed);
}

int main(void)
{
	const char *mips = getenv("mips");
	cpu_set_t all;
	uint64_t loops;
	int cpus;

	setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
	prctl(PR_SET_TIMERSLACK, 1);
	sched_getaffinity(0, sizeof(all), &all);
	cpus = CPU_COUNT(&all);
	loops_per_us = mips ? strtod(mips, NULL) / LOOP_OPS : 0;
	if (loops_per_us <= 0)
		die("the kernel's command line has no setting mips");
	if (cpus < 2)
		die("needs two CPUs");
	pin(0);
	sleep_until(clock_ns() + BOOTED_NS);
	loops = (uint64_t)(loops_per_us * BLOCK_NS / 1000);
	printf("virtualcheck: {\"cpus\": %d, \"loop_ns\": %lu, \"loop_exact_ns\": %d, ", cpus,
	       block_ns(loops), BLOCK_NS);
	print_speeds(cpus);
	/* the sender of the messages needs a core of its own */
	print_waits(cpus > 4 ? 4 : cpus > 2 ? 2 : 1);
	fflush(stdout);
	reboot(RB_AUTOBOOT);
	return 1;
}
