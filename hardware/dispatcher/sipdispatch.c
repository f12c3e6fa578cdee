// SPDX-License-Identifier: MIT
/*
 * sipdispatch: spreads the calls of few long TCP connections over the instances of a proxy.
 *
 * USAGE
 *   sipdispatch --listen A:P --instance A:P [--instance A:P ...] --report FILE [--ready FILE]
 *
 * WHAT IT DOES
 *   Cuts what a client sends into messages (frame.h) and hands each to the instance of its Call-ID; all messages of a call meet the
 *   same one. Every client has a connection of its own to each instance it needs, so what comes back on it is the client's, and
 *   no table of calls is kept. Messages are passed on as they are: no Via is added, nothing is parsed but where they end.
 *   It runs until SIGTERM or SIGINT and then writes a report, one JSON object:
 *     to_instances      messages handed to each instance, in the order given
 *     to_clients        messages that came back
 *     without_call_id   of to_instances, those without one, at the first
 *     lost              messages for an instance that could not be reached or ended, and for a client that is gone
 *     broken            streams that could not be followed: their connection is closed
 *     clients           connections accepted
 *     refused           of them, closed at once since descriptors or memory ran out
 *     stalls            times that a side was not read since the other did not take what was there: over TCP
 *                       all calls of a connection wait for the slowest instance
 *     cpu_ns, wall_ns   of the process
 *   Exit code: 0 good; 1 not, and one line on stderr says why; 2 wrong usage.
 *
 * LIMITS
 *   One thread, IPv4, no TLS; messages up to 65535 bytes. An instance that could not be reached is tried again after 100 ms.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "frame.h"
#include "program.h"

#define INSTANCES_MAX 250
#define READ_BYTES    (1 << 16)
#define BUFFER_BYTES  (FRAME_MAX + READ_BYTES)
#define OUT_BYTES_MAX (1UL << 20) /* unsent: from here on the other side is not read */
#define EVENTS        64
#define TOUCHED_MAX   1024
#define BACKLOG       4096
#define RETRY_NS      100000000ULL
#define NS_PER_S      1000000000ULL

struct way;

/* One side of a way: the client's connection, or that to an instance. */
struct side {
	struct way *way;
	int fd; /* -1: there is none */
	uint32_t events;
	uint64_t tried_ns;
	char *rest; /* the start of a message */
	size_t rest_size;
	char *out;       /* begins with a message, of which `out_done` bytes are sent */
	size_t out_size; /* `out_done` included */
	size_t out_done;
	size_t out_room;
	uint64_t queued; /* messages in `out` */
	bool connecting;
	bool touched; /* in `touched` of the dispatcher */
};

/* A client and its connections to the instances. */
struct way {
	struct way *next; /* of those to be freed */
	bool ended;
	struct side client;
	struct side instances[];
};

struct dispatcher {
	int epoll;
	int listener;
	int spare; /* given up to accept, and close, a client when descriptors have run out */
	unsigned n_instances;
	struct sockaddr_in instances[INSTANCES_MAX];
	struct way *ended;
	struct side *touched[TOUCHED_MAX]; /* have something new to send */
	unsigned n_touched;
	uint64_t to_instances[INSTANCES_MAX];
	uint64_t to_clients;
	uint64_t without_call_id;
	uint64_t lost;
	uint64_t broken;
	uint64_t clients;
	uint64_t refused;
	uint64_t stalls;
	char buffer[BUFFER_BYTES];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool is_client(const struct side *side)
{
	return side == &side->way->client;
}

/* Whether what a side sends may wait: a side is not read while one that it feeds is full. */
static bool may_read(const struct dispatcher *d, const struct side *side)
{
	const struct way *way = side->way;

	if (!is_client(side))
		return way->client.out_size <= OUT_BYTES_MAX;
	for (unsigned i = 0; i < d->n_instances; i++)
		if (way->instances[i].out_size > OUT_BYTES_MAX)
			return false;
	return true;
}

static void watch(struct dispatcher *d, struct side *side)
{
	struct epoll_event event = { .data.ptr = side };

	if (side->fd < 0)
		return;
	if (may_read(d, side))
		event.events |= EPOLLIN;
	else
		d->stalls += (side->events & EPOLLIN) != 0;
	if (side->out_size || side->connecting)
		event.events |= EPOLLOUT;
	if (event.events != side->events)
		epoll_ctl(d->epoll, EPOLL_CTL_MOD, side->fd, &event);
	side->events = event.events;
}

static void watch_all(struct dispatcher *d, struct way *way)
{
	watch(d, &way->client);
	for (unsigned i = 0; i < d->n_instances; i++)
		watch(d, &way->instances[i]);
}

static bool enter(struct dispatcher *d, struct side *side, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = side };
	int on = 1;

	setsockopt(side->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	side->events = events;
	return epoll_ctl(d->epoll, EPOLL_CTL_ADD, side->fd, &event) == 0;
}

/* What it has not sent is lost. */
static void close_side(struct dispatcher *d, struct side *side)
{
	if (side->fd >= 0)
		close(side->fd);
	d->lost += side->queued;
	free(side->rest);
	free(side->out);
	*side = (struct side){
		.way = side->way, .fd = -1, .tried_ns = side->tried_ns, .touched = side->touched
	};
}

static void end_way(struct dispatcher *d, struct way *way)
{
	if (way->ended)
		return;
	way->ended = true;
	close_side(d, &way->client);
	for (unsigned i = 0; i < d->n_instances; i++)
		close_side(d, &way->instances[i]);
	way->next = d->ended;
	d->ended = way;
}

/* A client that is gone takes its way with it; an instance does not. */
static void lose(struct dispatcher *d, struct side *side)
{
	if (is_client(side)) {
		end_way(d, side->way);
		return;
	}
	side->tried_ns = now_ns();
	close_side(d, side);
	watch_all(d, side->way);
}

static void free_ended(struct dispatcher *d)
{
	while (d->ended) {
		struct way *way = d->ended;

		d->ended = way->next;
		free(way);
	}
}

static void connect_instance(struct dispatcher *d, struct side *side)
{
	const struct sockaddr_in *address = &d->instances[side - side->way->instances];
	uint64_t now = now_ns();

	if (side->tried_ns && now < side->tried_ns + RETRY_NS)
		return;
	side->tried_ns = now;
	side->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (side->fd < 0)
		return;
	side->connecting = true;
	if ((connect(side->fd, (const struct sockaddr *)address, sizeof(*address)) && errno != EINPROGRESS) ||
	    !enter(d, side, EPOLLIN | EPOLLOUT))
		close_side(d, side);
}

static bool append(struct side *side, const char *text, size_t size)
{
	size_t room = side->out_room ? side->out_room : 4096;

	while (room < side->out_size + size)
		room *= 2;
	if (room > side->out_room) {
		char *out = realloc(side->out, room);

		if (!out)
			return false;
		side->out = out;
		side->out_room = room;
	}
	memcpy(side->out + side->out_size, text, size);
	side->out_size += size;
	side->queued++;
	return true;
}

/* Take the messages that are sent whole off the front. */
static void forget_sent(struct side *side)
{
	size_t begin = 0;
	struct frame frame;

	if (side->out_done == side->out_size) {
		side->out_size = side->out_done = 0;
		side->queued = 0;
		return;
	}
	while (frame_cut(side->out + begin, side->out_size - begin, &frame) == FRAME_WHOLE &&
	       begin + frame.length <= side->out_done) {
		begin += frame.length;
		side->queued--;
	}
	side->out_size -= begin;
	side->out_done -= begin;
	memmove(side->out, side->out + begin, side->out_size);
}

static void write_out(struct dispatcher *d, struct side *side)
{
	ssize_t sent;

	if (side->fd < 0 || side->connecting || !side->out_size)
		return;
	sent = send(side->fd, side->out + side->out_done, side->out_size - side->out_done, MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno != EAGAIN && errno != EINTR)
			lose(d, side);
		return;
	}
	side->out_done += (size_t)sent;
	forget_sent(side);
}

static struct side *target_of(struct dispatcher *d, struct side *from, const struct frame *frame)
{
	unsigned instance = frame->has_call_id ? frame->hash % d->n_instances : 0;

	if (!is_client(from)) {
		d->to_clients++;
		return &from->way->client;
	}
	d->without_call_id += !frame->has_call_id;
	d->to_instances[instance]++;
	return &from->way->instances[instance];
}

/* What several sides had for one goes to it at once: it is woken once. */
static void flush_touched(struct dispatcher *d)
{
	for (unsigned i = 0; i < d->n_touched; i++) {
		struct side *side = d->touched[i];

		side->touched = false;
		write_out(d, side);
		if (side->out_size && !side->way->ended)
			watch_all(d, side->way);
	}
	d->n_touched = 0;
}

static void pass_on(struct dispatcher *d, struct side *from, const char *text, const struct frame *frame)
{
	struct side *to = target_of(d, from, frame);

	if (to->fd < 0 && !is_client(to))
		connect_instance(d, to);
	if (to->fd < 0 || !append(to, text, frame->length)) {
		d->lost++;
		return;
	}
	if (to->touched)
		return;
	if (d->n_touched == TOUCHED_MAX)
		flush_touched(d);
	to->touched = true;
	d->touched[d->n_touched++] = to;
}

/* False: the stream cannot be followed. `used` gets the bytes that are passed on. */
static bool cut_all(struct dispatcher *d, struct side *side, size_t size, size_t *used)
{
	*used = 0;
	while (*used < size) {
		struct frame frame;
		enum frame_state state = frame_cut(d->buffer + *used, size - *used, &frame);

		*used += frame.skip;
		if (state != FRAME_WHOLE)
			return state == FRAME_PARTIAL;
		pass_on(d, side, d->buffer + *used, &frame);
		*used += frame.length;
	}
	return true;
}

static bool keep_rest(struct side *side, const char *text, size_t size)
{
	if (!size)
		return true;
	side->rest = malloc(size);
	if (!side->rest)
		return false;
	memcpy(side->rest, text, size);
	side->rest_size = size;
	return true;
}

static void read_side(struct dispatcher *d, struct side *side)
{
	size_t size = side->rest_size, used;
	ssize_t got = recv(side->fd, d->buffer + size, READ_BYTES, 0);
	struct way *way = side->way;
	bool followed;

	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			lose(d, side);
		return;
	}
	if (size)
		memcpy(d->buffer, side->rest, size);
	free(side->rest);
	side->rest = NULL;
	side->rest_size = 0;
	size += (size_t)got;
	followed = cut_all(d, side, size, &used);
	if (way->ended)
		return;
	d->broken += !followed;
	/* what is for this side may have found it gone */
	if (side->fd >= 0 && !(followed && keep_rest(side, d->buffer + used, size - used))) {
		flush_touched(d);
		lose(d, side);
	}
}

static int spare_descriptor(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* One that is left in the listener's queue would wake us for ever. */
static bool refuse_client(struct dispatcher *d)
{
	int fd;

	if (d->spare < 0)
		return false;
	close(d->spare);
	fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	d->spare = spare_descriptor();
	d->clients += fd >= 0;
	d->refused += fd >= 0;
	return fd >= 0;
}

static void add_client(struct dispatcher *d, int fd)
{
	struct way *way = calloc(1, sizeof(*way) + d->n_instances * sizeof(way->instances[0]));

	d->clients++;
	if (!way) {
		d->refused++;
		close(fd);
		return;
	}
	way->client = (struct side){ .way = way, .fd = fd };
	for (unsigned i = 0; i < d->n_instances; i++)
		way->instances[i] = (struct side){ .way = way, .fd = -1 };
	if (!enter(d, &way->client, EPOLLIN)) {
		d->refused++;
		end_way(d, way);
	}
}

static void accept_clients(struct dispatcher *d)
{
	for (;;) {
		int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			add_client(d, fd);
		else if ((errno != EMFILE && errno != ENFILE) || !refuse_client(d))
			return;
	}
}

static void on_writable(struct dispatcher *d, struct side *side)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (side->connecting) {
		getsockopt(side->fd, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error) {
			lose(d, side);
			return;
		}
		side->connecting = false;
		side->tried_ns = 0;
	}
	write_out(d, side);
	if (!side->way->ended)
		watch_all(d, side->way);
}

static void serve(struct dispatcher *d, const sigset_t *signals)
{
	while (!stop_asked) {
		struct epoll_event events[EVENTS];
		int count = epoll_pwait(d->epoll, events, EVENTS, -1, signals);

		for (int i = 0; i < count; i++) {
			struct side *side = events[i].data.ptr;

			if (!side) {
				accept_clients(d);
				continue;
			}
			if (side->fd >= 0 && events[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
				on_writable(d, side);
			if (side->fd >= 0 && events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
				read_side(d, side);
		}
		flush_touched(d);
		free_ended(d);
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static int write_report(const struct dispatcher *d, const char *path, uint64_t start_ns)
{
	FILE *file = fopen(path, "w");

	if (!file)
		return fail(path, errno);
	fprintf(file, "{\"to_instances\": [");
	for (unsigned i = 0; i < d->n_instances; i++)
		fprintf(file, "%s%" PRIu64, i ? ", " : "", d->to_instances[i]);
	fprintf(file,
		"], \"to_clients\": %" PRIu64 ", \"without_call_id\": %" PRIu64 ", \"lost\": %" PRIu64
		", \"broken\": %" PRIu64 ", \"clients\": %" PRIu64 ", \"refused\": %" PRIu64
		", \"stalls\": %" PRIu64,
		d->to_clients, d->without_call_id, d->lost, d->broken, d->clients, d->refused, d->stalls);
	fprintf(file, ", \"cpu_ns\": %" PRIu64 ", \"wall_ns\": %" PRIu64 "}\n", cpu_ns(),
		now_ns() - start_ns);
	return fclose(file) ? fail(path, errno) : 0;
}

static _Noreturn void usage(void)
{
	fprintf(stderr, "sipdispatch: usage: sipdispatch --listen A:P --instance A:P [--instance A:P ...] "
			"--report FILE "
			"[--ready FILE]; addresses as 10.0.0.1:5060, at most 250 instances\n");
	exit(2);
}

static struct sockaddr_in parse_address(const char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	const char *colon = strchr(text, ':');
	char host[INET_ADDRSTRLEN] = "", *end;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

	if (!colon || (size_t)(colon - text) >= sizeof(host) || !port || port > 65535 || *end)
		usage();
	memcpy(host, text, (size_t)(colon - text));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		usage();
	address.sin_port = htons((uint16_t)port);
	return address;
}

static int open_listener(struct dispatcher *d, const struct sockaddr_in *address)
{
	struct epoll_event event = { .events = EPOLLIN };
	int on = 1;

	d->spare = spare_descriptor();
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->epoll < 0 || d->listener < 0)
		return fail("cannot open a socket", errno);
	setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(d->listener, (const struct sockaddr *)address, sizeof(*address)) ||
	    listen(d->listener, BACKLOG) || epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->listener, &event))
		return fail("cannot listen", errno);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "instance", required_argument, NULL, 'i' },
		{ "report", required_argument, NULL, 'r' },
		{ "ready", required_argument, NULL, 'y' },
		{ 0 },
	};
	static struct dispatcher dispatcher;
	const char *report = NULL, *ready = NULL;
	struct sockaddr_in listen_at = { 0 };
	uint64_t start_ns = now_ns();
	sigset_t none;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'l')
			listen_at = parse_address(optarg);
		else if (option == 'i' && dispatcher.n_instances < INSTANCES_MAX)
			dispatcher.instances[dispatcher.n_instances++] = parse_address(optarg);
		else if (option == 'r')
			report = optarg;
		else if (option == 'y')
			ready = optarg;
		else
			usage();
	}
	if (!listen_at.sin_port || !dispatcher.n_instances || !report || optind < argc)
		usage();
	await_signals();
	if (open_listener(&dispatcher, &listen_at) || (ready && write_ready(ready)))
		return 1;
	sigemptyset(&none);
	serve(&dispatcher, &none);
	/* the report may need it */
	close(dispatcher.spare);
	return write_report(&dispatcher, report, start_ns);
}
