// SPDX-License-Identifier: MIT
/*
 * sipdispatch distributes the calls of few long TCP connections over the instances of a proxy.
 *
 * USAGE
 *   sipdispatch --listen A:P --instance A:P [--instance A:P ...] --report FILE [--ready FILE]
 *
 * WHAT IT DOES
 *   sipdispatch cuts the stream of a client into messages (frame.h). The Call-ID of a message decides which instance gets
 *   the message, so all messages of a call reach the same instance. Each client has its own connection to each instance
 *   that it needs. An answer on such a connection belongs to the client, so sipdispatch needs no table of calls.
 *   sipdispatch does not change messages and adds no Via. From the first lines of messages, sipdispatch counts the
 *   requests of a client that have no final answer yet. When a client closes its sending side (shutdown), sipdispatch
 *   passes on the missing answers before it closes the connection. sipdispatch waits for each answer for at most
 *   LINGER_NS.
 *   sipdispatch runs until SIGTERM or SIGINT, and then writes a report, one JSON object:
 *     to_instances      messages to each instance, in the order of the arguments
 *     to_clients        messages to clients
 *     unsent            messages that were still queued in sipdispatch at the end
 *     without_call_id   messages without a Call-ID, which went to the first instance
 *     lost              messages whose receiver, an instance or a client, was unreachable or had closed its connection
 *     broken            streams that sipdispatch could not cut into messages; it closed their connections
 *     clients           accepted connections
 *     answering         accepted connections whose first message is an answer. When a client has disconnected, the
 *                       instance connects to the port in the client's Via, at the address of sipdispatch, to send its
 *                       answer
 *     refused           connections that sipdispatch accepted and closed at once, because descriptors or memory ran out
 *     stalls            how often sipdispatch stopped reading a connection because its receivers had too much unsent
 *                       data: over TCP, all calls of a connection wait for the slowest instance
 *     cpu_ns, wall_ns   CPU time and wall-clock time of the process
 *   The exit code is 0 on success, 1 with one line on stderr for an error, and 2 for wrong usage.
 *
 * LIMITS
 *   sipdispatch has one thread, and supports IPv4 without TLS and messages of at most 65535 bytes. After 100 ms,
 *   sipdispatch tries an unreachable instance again.
 */
#include <errno.h>
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
#include "../common/arguments.h"
#include "../common/clock.h"
#include "../common/program.h"
#include "../common/stream.h"

#define INSTANCES_MAX 250
/* Number of unsent bytes of a receiver at which sipdispatch stops reading from the senders, to bound its memory. */
#define OUT_BYTES_MAX (1UL << 20)
#define EVENTS        64
#define TOUCHED_MAX   1024
#define BACKLOG       4096
#define RETRY_NS      (100 * NS_PER_MS)
/* The longest wait for an answer. After 64 T1 = 32 s, the request's transaction has ended (RFC 3261 17.1.2.2). */
#define LINGER_NS (32 * NS_PER_S)

struct session;

/* A connection of a session, either to the client or to an instance. */
struct side {
	struct session *session;
	int fd; /* socket of the connection; -1: not connected */
	uint32_t events;
	uint64_t tried_ns;
	struct stream in;
	char *out; /* unsent messages; the first `out_done` bytes of the first message are already sent */
	size_t out_size; /* number of bytes in `out`, including `out_done` */
	size_t out_done;
	size_t out_room;
	uint64_t queued; /* number of messages in `out` */
	bool connecting;
	bool touched; /* true: the dispatcher's list `touched` contains this connection */
};

/* A client and its connections to the instances. */
struct session {
	struct session *next; /* next session in the dispatcher's list `ended` or `leaving` */
	bool ended;
	bool heard;   /* the client has sent at least one message */
	bool leaving; /* the client has closed its sending side and waits for answers */
	/* The time at which sipdispatch closes a leaving client, even if answers are missing. */
	uint64_t limit_ns;
	uint64_t unanswered; /* number of the client's requests without a final answer */
	struct side client;
	struct side instances[];
};

struct dispatcher {
	int epoll;
	int listener;
	/*
	 * A spare descriptor, which sipdispatch closes when descriptors run out, to accept and close one more client.
	 */
	int spare;
	unsigned n_instances;
	struct sockaddr_in instances[INSTANCES_MAX];
	struct session *ended;
	struct session *leaving;
	struct side *touched[TOUCHED_MAX]; /* connections that have new data to send */
	unsigned n_touched;
	uint64_t to_instances[INSTANCES_MAX];
	uint64_t to_clients;
	uint64_t without_call_id;
	uint64_t unsent; /* number of messages in all `out` buffers */
	uint64_t lost;
	uint64_t broken;
	uint64_t clients;
	uint64_t answering;
	uint64_t refused;
	uint64_t stalls;
	char buffer[STREAM_BYTES];
};

static bool is_client(const struct side *side)
{
	return side == &side->session->client;
}

/* Return whether sipdispatch reads from a connection. Reading pauses while a receiver has too much unsent data. */
static bool may_read(const struct dispatcher *d, const struct side *side)
{
	const struct session *session = side->session;

	if (!is_client(side))
		return session->client.out_size <= OUT_BYTES_MAX;
	if (session->leaving)
		return false;
	for (unsigned i = 0; i < d->n_instances; i++)
		if (session->instances[i].out_size > OUT_BYTES_MAX)
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
	else if (!is_client(side) || !side->session->leaving)
		d->stalls += (side->events & EPOLLIN) != 0;
	if (side->out_size || side->connecting)
		event.events |= EPOLLOUT;
	if (event.events != side->events)
		epoll_ctl(d->epoll, EPOLL_CTL_MOD, side->fd, &event);
	side->events = event.events;
}

static void watch_all(struct dispatcher *d, struct session *session)
{
	watch(d, &session->client);
	for (unsigned i = 0; i < d->n_instances; i++)
		watch(d, &session->instances[i]);
}

static bool enter(struct dispatcher *d, struct side *side, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = side };
	int on = 1;

	setsockopt(side->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	side->events = events;
	return epoll_ctl(d->epoll, EPOLL_CTL_ADD, side->fd, &event) == 0;
}

/* Close a connection, and count the unsent messages of the connection as lost. */
static void close_side(struct dispatcher *d, struct side *side)
{
	if (side->fd >= 0)
		close(side->fd);
	d->lost += side->queued;
	d->unsent -= side->queued;
	stream_free(&side->in);
	free(side->out);
	*side = (struct side){
		.session = side->session, .fd = -1, .tried_ns = side->tried_ns, .touched = side->touched
	};
}

static void end_session(struct dispatcher *d, struct session *session)
{
	if (session->ended)
		return;
	session->ended = true;
	close_side(d, &session->client);
	for (unsigned i = 0; i < d->n_instances; i++)
		close_side(d, &session->instances[i]);
	if (session->leaving)
		return; /* end_leaving() will move this session from the list `leaving` to the list `ended` */
	session->next = d->ended;
	d->ended = session;
}

/* Handle a lost connection. A session ends if its client is lost, and continues if an instance is lost. */
static void lose(struct dispatcher *d, struct side *side)
{
	if (is_client(side)) {
		end_session(d, side->session);
		return;
	}
	side->tried_ns = clock_ns();
	close_side(d, side);
	watch_all(d, side->session);
}

/* Return whether a leaving client has received all answers, and every message of the session is sent. */
static bool is_settled(const struct dispatcher *d, const struct session *session)
{
	if (session->unanswered || session->client.out_size)
		return false;
	for (unsigned i = 0; i < d->n_instances; i++)
		if (session->instances[i].out_size)
			return false;
	return true;
}

/*
 * Handle the end of a client's stream. A client that has closed both directions looks like a client that only stopped
 * sending, until sipdispatch sends something to it.
 */
static void leave(struct dispatcher *d, struct session *session)
{
	session->leaving = true;
	session->limit_ns = clock_ns() + LINGER_NS;
	session->next = d->leaving;
	d->leaving = session;
	watch(d, &session->client);
}

/* End the sessions of clients that stopped sending, once they have all answers or their time limit is over. */
static void end_leaving(struct dispatcher *d)
{
	uint64_t now = d->leaving ? clock_ns() : 0;
	struct session **link = &d->leaving;

	while (*link) {
		struct session *session = *link;

		if (!session->ended && !is_settled(d, session) && now < session->limit_ns) {
			link = &session->next;
			continue;
		}
		end_session(d, session);
		*link = session->next;
		session->next = d->ended;
		d->ended = session;
	}
}

static void free_ended(struct dispatcher *d)
{
	while (d->ended) {
		struct session *session = d->ended;

		d->ended = session->next;
		free(session);
	}
}

static void connect_instance(struct dispatcher *d, struct side *side)
{
	const struct sockaddr_in *address = &d->instances[side - side->session->instances];
	uint64_t now = clock_ns();

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

static bool append(struct dispatcher *d, struct side *side, const char *text, size_t size)
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
	d->unsent++;
	return true;
}

/* Remove from the buffer the messages that the kernel has accepted completely. */
static void forget_sent(struct dispatcher *d, struct side *side)
{
	size_t begin = 0;
	struct frame frame;

	if (side->out_done == side->out_size) {
		side->out_size = side->out_done = 0;
		d->unsent -= side->queued;
		side->queued = 0;
		return;
	}
	while (frame_cut(side->out + begin, side->out_size - begin, &frame) == FRAME_WHOLE &&
	       begin + frame.length <= side->out_done) {
		begin += frame.length;
		side->queued--;
		d->unsent--;
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
	forget_sent(d, side);
}

static bool begins(const char *text, const struct frame *frame, const char *with)
{
	size_t size = strlen(with);

	return frame->length > size && memcmp(text, with, size) == 0;
}

/*
 * Count the client's requests that have no final answer yet. Every request except ACK gets a final answer (RFC 3261
 * 17.1).
 */
static void count_unanswered(struct dispatcher *d, const struct side *from, const char *text,
			     const struct frame *frame)
{
	static const char version[] = "SIP/2.0 ";
	struct session *session = from->session;
	bool answer = begins(text, frame, version);

	if (is_client(from)) {
		d->answering += answer && !session->heard;
		session->heard = true;
		session->unanswered += !answer && !begins(text, frame, "ACK ");
		return;
	}
	if (session->leaving)
		session->limit_ns = clock_ns() + LINGER_NS;
	/*
	 * a UAS may repeat its 200 to INVITE (RFC 3261 13.3.1.4), and a repetition must not reduce the count below 0
	 */
	if (answer && text[sizeof(version) - 1] >= '2' && session->unanswered)
		session->unanswered--;
}

static struct side *target_of(struct dispatcher *d, struct side *from, const struct frame *frame)
{
	unsigned instance = frame->has_call_id ? frame->hash % d->n_instances : 0;

	if (!is_client(from)) {
		d->to_clients++;
		return &from->session->client;
	}
	d->without_call_id += !frame->has_call_id;
	d->to_instances[instance]++;
	return &from->session->instances[instance];
}

/* Send the collected messages. Several messages for one receiver go out together, so the receiver wakes up once. */
static void flush_touched(struct dispatcher *d)
{
	for (unsigned i = 0; i < d->n_touched; i++) {
		struct side *side = d->touched[i];

		side->touched = false;
		write_out(d, side);
		if (side->out_size && !side->session->ended)
			watch_all(d, side->session);
	}
	d->n_touched = 0;
}

/* The argument of pass_on(), which identifies the connection from which a message came. */
struct source {
	struct dispatcher *dispatcher;
	struct side *side;
};

static void pass_on(void *context, const char *text, const struct frame *frame)
{
	const struct source *source = context;
	struct dispatcher *d = source->dispatcher;
	struct side *from = source->side, *to = target_of(d, from, frame);

	count_unanswered(d, from, text, frame);
	if (to->fd < 0 && !is_client(to))
		connect_instance(d, to);
	if (to->fd < 0 || !append(d, to, text, frame->length)) {
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

static void read_side(struct dispatcher *d, struct side *side)
{
	size_t size = side->in.size, used;
	ssize_t got = recv(side->fd, d->buffer + size, STREAM_READ, 0);
	struct source source = { d, side };
	struct session *session = side->session;
	bool followed;

	if (got == 0 && is_client(side) && !session->leaving) {
		leave(d, session);
		return;
	}
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			lose(d, side);
		return;
	}
	size = stream_resume(&side->in, d->buffer) + (size_t)got;
	followed = stream_cut(d->buffer, size, pass_on, &source, &used);
	if (session->ended)
		return;
	d->broken += !followed;
	/* pass_on() may already have closed this connection, because an earlier send on it failed */
	if (side->fd >= 0 && !(followed && stream_keep(&side->in, d->buffer + used, size - used))) {
		flush_touched(d);
		lose(d, side);
	}
}

static int spare_descriptor(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/*
 * Accept a client and close the connection at once, because a client that stays in the listen queue would wake epoll
 * endlessly.
 */
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
	struct session *session =
		calloc(1, sizeof(*session) + d->n_instances * sizeof(session->instances[0]));

	d->clients++;
	if (!session) {
		d->refused++;
		close(fd);
		return;
	}
	session->client = (struct side){ .session = session, .fd = fd };
	for (unsigned i = 0; i < d->n_instances; i++)
		session->instances[i] = (struct side){ .session = session, .fd = -1 };
	if (!enter(d, &session->client, EPOLLIN)) {
		d->refused++;
		end_session(d, session);
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
	if (!side->session->ended)
		watch_all(d, side->session);
}

static void serve(struct dispatcher *d, const sigset_t *signals)
{
	while (!stop_asked) {
		struct epoll_event events[EVENTS];
		/* while clients wait for answers, wake up once a second to close clients whose time limit is over */
		int count = epoll_pwait(d->epoll, events, EVENTS, d->leaving ? 1000 : -1, signals);

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
		end_leaving(d);
		free_ended(d);
	}
}

static int write_report(const struct dispatcher *d, const char *path, uint64_t start_ns)
{
	FILE *file = fopen(path, "w");

	if (!file)
		return fail(path, strerror(errno));
	fprintf(file, "{\"to_instances\": [");
	for (unsigned i = 0; i < d->n_instances; i++)
		fprintf(file, "%s%" PRIu64, i ? ", " : "", d->to_instances[i]);
	fprintf(file,
		"], \"to_clients\": %" PRIu64 ", \"unsent\": %" PRIu64 ", \"without_call_id\": %" PRIu64
		", \"lost\": %" PRIu64 ", \"broken\": %" PRIu64 ", \"clients\": %" PRIu64
		", \"answering\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"stalls\": %" PRIu64,
		d->to_clients, d->unsent, d->without_call_id, d->lost, d->broken, d->clients, d->answering,
		d->refused, d->stalls);
	fprintf(file, ", \"cpu_ns\": %" PRIu64 ", \"wall_ns\": %" PRIu64 "}\n",
		read_clock(CLOCK_PROCESS_CPUTIME_ID), clock_ns() - start_ns);
	return fclose(file) ? fail(path, strerror(errno)) : 0;
}

static _Noreturn void usage(void)
{
	complain("usage: sipdispatch --listen A:P --instance A:P [--instance A:P ...] --report FILE [--ready "
		 "FILE]; "
		 "addresses as 10.0.0.1:5060, at most %d instances",
		 INSTANCES_MAX);
	exit(EXIT_USAGE);
}

static int open_listener(struct dispatcher *d, const struct sockaddr_in *address)
{
	struct epoll_event event = { .events = EPOLLIN };
	int on = 1;

	d->spare = spare_descriptor();
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->epoll < 0 || d->listener < 0)
		return fail("cannot open a socket", strerror(errno));
	setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(d->listener, (const struct sockaddr *)address, sizeof(*address)) ||
	    listen(d->listener, BACKLOG) || epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->listener, &event))
		return fail("cannot listen", strerror(errno));
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
	uint64_t start_ns = clock_ns();
	sigset_t none;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		bool good = true;

		if (option == 'l')
			good = parse_address(optarg, &listen_at);
		else if (option == 'i' && dispatcher.n_instances < INSTANCES_MAX)
			good = parse_address(optarg, &dispatcher.instances[dispatcher.n_instances++]);
		else if (option == 'r')
			report = optarg;
		else if (option == 'y')
			ready = optarg;
		else
			good = false;
		if (!good)
			usage();
	}
	if (!listen_at.sin_port || !dispatcher.n_instances || !report || optind < argc)
		usage();
	block_signals();
	catch_signals();
	if (open_listener(&dispatcher, &listen_at) || (ready && !write_ready(ready)))
		return 1;
	sigemptyset(&none);
	serve(&dispatcher, &none);
	/* close the spare descriptor, because the report may need one */
	close(dispatcher.spare);
	return write_report(&dispatcher, report, start_ns);
}
