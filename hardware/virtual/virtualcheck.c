// SPDX-License-Identifier: MIT
/*
 * virtualcheck tests the virtual time of the guest in which it is the only program. virtualcheck runs as process 1,
 * prints one line of JSON, and ends QEMU.
 *
 *   loop_ns, loop_exact_ns   time of a loop with a known number of instructions, and the exact time
 *   speeds                   loops per us of each CPU while all CPUs are busy, and of CPU 0 alone as the first number
 *   wait_ns, theory_ns       mean wait of messages for several workers on one socket, and the computed wait of the same arrivals
 *   in a queue with constant service
 *   room, lost, theory_lost  number of messages that fit into the queue of a socket with a small receive buffer, number of messages
 *   that the socket drops if the services have an exponential distribution, and the computed number for the same arrivals and services
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
#include <stdbool.h>
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
#define LOAD           0.8
#define FULL_LOAD      1.1    /* at this load, a small receive buffer drops about one message in ten */
#define FILLING        200    /* number of messages from which the service time is measured */
#define MESSAGES       1000   /* with constant services */
#define DRAWN_MESSAGES 2000   /* with services of an exponential distribution */
#define DRAWN_NS       200000 /* mean of these services */
#define PORT           5555
#define QUEUE_BYTES    (8 << 20)
#define SMALL_BYTES    4096 /* SO_RCVBUFFORCE doubles this size */
#define DATAGRAM_BYTES 768  /* memory that the kernel counts for a small datagram */
#define SETTLE_NS      20000000
#define BOOTED_NS      10000000000 /* after the boot, kernel threads still use the CPUs for some seconds */
#define END            (-1)
#define MAX_MESSAGES   (MAX_CPUS * FILLING / 2)
_Static_assert(MAX_MESSAGES >= MESSAGES && MAX_MESSAGES >= DRAWN_MESSAGES, "messages need space");

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

/* ---- queues ---- */

static struct message {
	uint64_t loops, arrived, done; /* a dropped message is never done */
} * messages;                          /* shared with the workers */

struct queue {
	int server, client, workers, messages;
	double overhead; /* time per message in addition to its loops */
};

struct outcome {
	double wait, computed_wait; /* mean wait of a message that was not dropped, in ns */
	int lost, computed_lost;
};

static double loops_ns(uint64_t loops)
{
	return (double)loops * 1000 / loops_per_us;
}

static void work(int fd, int cpu)
{
	int message;

	pin(cpu);
	while (recv(fd, &message, sizeof(message), 0) == sizeof(message) && message != END) {
		spin(messages[message].loops);
		messages[message].done = clock_ns();
	}
	_exit(0);
}

static void send_message(const struct queue *queue, int message)
{
	messages[message].arrived = clock_ns();
	if (send(queue->client, &message, sizeof(message), 0) != sizeof(message))
		die("cannot send a datagram");
}

static void open_queue(struct queue *queue, int bytes)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	queue->server = socket(AF_INET, SOCK_DGRAM, 0);
	queue->client = socket(AF_INET, SOCK_DGRAM, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (ioctl(queue->server, SIOCSIFFLAGS, &loopback) ||
	    setsockopt(queue->server, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) ||
	    bind(queue->server, (struct sockaddr *)&address, sizeof(address)) ||
	    connect(queue->client, (struct sockaddr *)&address, sizeof(address)))
		die("cannot open a socket");
	memset(messages, 0, MAX_MESSAGES * sizeof(*messages));
}

static void start_workers(const struct queue *queue)
{
	for (int i = 0; i < queue->workers; i++)
		if (!fork())
			work(queue->server, i);
	sleep_until(clock_ns() + SETTLE_NS);
}

static void close_queue(const struct queue *queue)
{
	sleep_until(clock_ns() + SETTLE_NS);
	for (int i = 0; i < queue->workers; i++)
		send(queue->client, &(int){ END }, sizeof(int), 0);
	while (wait(NULL) > 0)
		;
	close(queue->server);
	close(queue->client);
}

/* Return the number of datagrams that the receive buffer of the socket stores. */
static int find_room(const struct queue *queue)
{
	int room = 0, message = 0;

	for (int i = 0; i < MESSAGES; i++)
		send_message(queue, message);
	while (recv(queue->server, &message, sizeof(message), MSG_DONTWAIT) == sizeof(message))
		room++;
	return room;
}

/* Return the time that a message needs in addition to its loops, measured while all workers are busy. */
static double measure_overhead(const struct queue *queue)
{
	static uint64_t done[MAX_MESSAGES];
	int count = queue->workers * FILLING / 2, used = queue->workers;
	double service;

	for (int i = 0; i < count; i++) {
		messages[i].loops = (uint64_t)(loops_per_us * SERVICE_NS / 1000);
		send_message(queue, i);
	}
	while (!messages[count - 1].done || !messages[count - 2].done)
		sleep_until(clock_ns() + SETTLE_NS);
	for (int i = 0; i < count; i++)
		done[i] = messages[i].done;
	qsort(done, (size_t)count, sizeof(*done), compare);
	/* exclude the first and last messages, because not all workers were busy during their service */
	service = (double)(done[count - 1 - used] - done[used - 1]) * used / (count - 2 * used);
	return service - loops_ns(messages[0].loops);
}

/* Offer messages with Poisson arrivals, and with services that are constant or have an exponential distribution. */
static void offer(const struct queue *queue, double load, uint64_t service_ns, bool exponential)
{
	double mean = (double)service_ns + queue->overhead, at;

	for (int i = 0; i < queue->messages; i++) {
		double share = exponential ? -log1p(-drand48()) : 1;

		messages[i].loops = (uint64_t)(share * (double)service_ns * loops_per_us / 1000);
		messages[i].done = 0;
	}
	at = (double)clock_ns() + SETTLE_NS;
	for (int i = 0; i < queue->messages; i++) {
		at -= log1p(-drand48()) * mean / queue->workers / load;
		sleep_until((uint64_t)at);
		send_message(queue, i);
	}
}

/*
 * The memory of a socket in a computed queue, in datagrams. As the kernel's udp_rmem_release(), readers free the memory
 * of datagrams only if they owe a quarter of the buffer, or if no datagram is readable. Datagrams become readable when no
 * other datagram is readable, and when memory is freed.
 */
struct memory {
	int charged, owed, received, readable;
};

static void make_readable(struct memory *memory)
{
	memory->readable += memory->received;
	memory->received = 0;
}

static void take(struct memory *memory)
{
	if (!memory->readable)
		make_readable(memory);
	memory->readable--;
	memory->owed++;
	if (memory->readable && memory->owed * DATAGRAM_BYTES < 2 * SMALL_BYTES / 4)
		return;
	memory->charged -= memory->owed;
	memory->owed = 0;
	make_readable(memory);
}

/* Compare the offered messages with a computed queue that has the same arrivals, the same services and `room` places. */
static struct outcome compare_queue(const struct queue *queue, int room)
{
	static double starts[MAX_MESSAGES]; /* of the accepted messages, in the order of their arrival */
	double free_at[MAX_CPUS] = { 0 };
	struct outcome result = { 0 };
	struct memory memory = { 0 };
	int accepted = 0, taken = 0;

	for (int i = 0; i < queue->messages; i++) {
		double at = (double)(messages[i].arrived - messages[0].arrived);
		double service = loops_ns(messages[i].loops) + queue->overhead;
		int next = 0;

		if (messages[i].done)
			result.wait += (double)(messages[i].done - messages[i].arrived) - service;
		else
			result.lost++;
		for (; taken < accepted && starts[taken] <= at; taken++)
			take(&memory);
		if (memory.charged >= room) {
			result.computed_lost++;
			continue;
		}
		memory.charged++;
		memory.received++;
		for (int j = 1; j < queue->workers; j++)
			if (free_at[j] < free_at[next])
				next = j;
		starts[accepted] = free_at[next] > at ? free_at[next] : at;
		free_at[next] = starts[accepted] + service;
		result.computed_wait += starts[accepted++] - at;
	}
	result.wait /= queue->messages - result.lost;
	result.computed_wait /= accepted;
	return result;
}

static void print_queues(int workers)
{
	struct queue queue = { .workers = workers, .messages = MESSAGES };
	struct outcome constant, limited;
	int room;

	messages = mmap(NULL, MAX_MESSAGES * sizeof(*messages), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (messages == MAP_FAILED)
		die("cannot map memory");
	pin(workers);
	srand48(1);
	open_queue(&queue, QUEUE_BYTES);
	start_workers(&queue);
	queue.overhead = measure_overhead(&queue);
	offer(&queue, LOAD, SERVICE_NS, false);
	close_queue(&queue);
	constant = compare_queue(&queue, MESSAGES);
	queue.messages = DRAWN_MESSAGES;
	open_queue(&queue, SMALL_BYTES);
	room = find_room(&queue);
	start_workers(&queue);
	offer(&queue, FULL_LOAD, DRAWN_NS, true);
	close_queue(&queue);
	limited = compare_queue(&queue, room);
	printf("\"workers\": %d, \"service_ns\": %.0f, \"wait_ns\": %.0f, \"theory_ns\": %.0f, "
	       "\"room\": %d, \"lost\": %d, \"theory_lost\": %d}\n",
	       workers, SERVICE_NS + queue.overhead, constant.wait, constant.computed_wait, room,
	       limited.lost, limited.computed_lost);
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
	print_queues(cpus > 4 ? 4 : cpus > 2 ? 2 : 1);
	fflush(stdout);
	reboot(RB_AUTOBOOT);
	return 1;
}
