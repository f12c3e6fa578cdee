// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "../common/stream.h"
#include "link.h"

#define BATCH 16
/* Size of a buffer for one datagram. The extra bytes put a batch's buffers into different sets of the CPU's cache. */
#define DATAGRAM_BYTES (65536 + 4096 + 64)
#define EVENTS         64
#define OUT_BYTES_MAX  (16UL << 20) /* limit of unsent bytes per connection; messages above it are dropped */
#define LISTENER       UINT32_MAX
#define BACKLOG        4096

/* A queued message. The link counts the message as sent when the kernel has accepted all its bytes. */
struct unsent {
	size_t size; /* number of bytes that are not sent yet */
	enum sip_kind kind;
	bool again;
};

struct connection {
	int fd; /* -1: this entry is free */
	uint32_t generation;
	uint64_t owner;
	struct sockaddr_in remote; /* for an accepted connection, the client's address */
	bool dialled;
	bool closing;
	bool dirty; /* true: the list link->dirty contains the connection, which has bytes to send or must be closed */
	bool connecting;     /* TCP's handshake is not finished, so no byte has been sent yet */
	bool writing;        /* epoll reports when the socket is writable (EPOLLOUT) */
	uint64_t blocked_ns; /* time at which the send buffer became full; 0 while it has room */
	struct stream in;
	char *out;
	size_t out_size;
	size_t out_room;
	struct unsent *unsent; /* one entry per message in `out` */
	size_t n_unsent;
	size_t unsent_room;
};

struct link {
	struct outbox outbox;
	struct outbox urgent;
	struct counts counts;
	int socket;
	int epoll;
	bool reliable;
	bool connected;
	int buffer_bytes;
	link_received *received;
	link_lost *lost_callback;
	void *context;
	/* members for UDP */
	char *datagrams;
	struct mmsghdr in[BATCH];
	struct iovec in_parts[BATCH];
	struct sockaddr_in in_from[BATCH];
	/* members for TCP */
	struct connection *connections;
	uint32_t n_connections;
	uint32_t *spare; /* indices of the free entries of `connections` */
	uint32_t n_spare;
	uint32_t *dirty; /* indices of connections that have unsent bytes or must be closed */
	uint32_t n_dirty;
	uint32_t *lost; /* indices of lost connections that report_losses() has not reported yet */
	uint32_t n_lost;
	uint32_t room; /* allocated length of `connections`, `spare`, `dirty` and `lost` */
	char *stream;
};

static void count_error(uint64_t *errors, int error)
{
	errors[error > 0 && error < ERRNO_MAX ? error : 0]++;
}

static void set_buffers(int fd, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static int close_with_errno(int fd)
{
	int error = errno;

	close(fd);
	errno = error;
	return -1;
}

void close_udp(int fd)
{
	char byte;

	while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) >= 0 || errno == EINTR || errno == ECONNREFUSED)
		;
	close(fd);
}

int open_udp(const struct sockaddr_in *local, const struct sockaddr_in *remote, int buffer_bytes)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	set_buffers(fd, buffer_bytes);
	if (bind(fd, (const struct sockaddr *)local, sizeof(*local)) ||
	    (remote && connect(fd, (const struct sockaddr *)remote, sizeof(*remote))))
		return close_with_errno(fd);
	return fd;
}

int open_tcp_listener(const struct sockaddr_in *local, int buffer_bytes)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* set the options at the listener, because accepted connections inherit TCP_NODELAY and the buffer sizes */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	set_buffers(fd, buffer_bytes);
	if (bind(fd, (const struct sockaddr *)local, sizeof(*local)) || listen(fd, BACKLOG))
		return close_with_errno(fd);
	return fd;
}

static void flush_udp(struct outbox *outbox, unsigned count);
static void flush_tcp(struct outbox *outbox, unsigned count);

static bool watch(struct link *link, int fd, int operation, uint32_t events, uint32_t index,
		  uint32_t generation)
{
	struct epoll_event event = { .events = events, .data.u64 = (uint64_t)generation << 32 | index };

	return epoll_ctl(link->epoll, operation, fd, &event) == 0;
}

struct link *link_open(int socket, bool reliable, bool connected, int buffer_bytes)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->socket = socket;
	link->reliable = reliable;
	link->connected = connected;
	link->buffer_bytes = buffer_bytes;
	link->outbox.counts = link->urgent.counts = &link->counts;
	link->outbox.flush = link->urgent.flush = reliable ? flush_tcp : flush_udp;
	link->outbox.owner = link->urgent.owner = link;
	link->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (reliable)
		link->stream = malloc(STREAM_BYTES);
	else
		link->datagrams = malloc((size_t)BATCH * DATAGRAM_BYTES);
	if (link->epoll < 0 || (!link->stream && !link->datagrams) ||
	    (socket >= 0 && !watch(link, socket, EPOLL_CTL_ADD, EPOLLIN | EPOLLEXCLUSIVE, LISTENER, 0))) {
		link_free(link);
		return NULL;
	}
	return link;
}

void link_set_callbacks(struct link *link, link_received *received, link_lost *lost, void *context)
{
	link->received = received;
	link->lost_callback = lost;
	link->context = context;
}

static void count_sent(struct link *link, enum sip_kind kind, bool again, bool sent)
{
	if (!sent)
		link->counts.not_sent[kind]++;
	else if (again)
		link->counts.sent_again[kind]++;
	else
		link->counts.sent[kind]++;
}

static void count_blocked(struct link *link, struct connection *c)
{
	if (c->blocked_ns)
		link->counts.blocked_ns += clock_ns() - c->blocked_ns;
	c->blocked_ns = 0;
}

/*
 * Close a connection and count its unsent messages as not sent. The caller adds the connection's index to `spare` or
 * `lost`.
 */
static void end_connection(struct link *link, uint32_t index)
{
	struct connection *c = &link->connections[index];

	for (size_t i = 0; i < c->n_unsent; i++)
		count_sent(link, c->unsent[i].kind, c->unsent[i].again, false);
	link->counts.connections_cut += c->in.size > 0;
	count_blocked(link, c);
	close(c->fd);
	stream_free(&c->in);
	free(c->out);
	free(c->unsent);
	*c = (struct connection){
		.fd = -1, .generation = c->generation + 1, .owner = c->owner, .dirty = c->dirty
	};
}

static void drop_connection(struct link *link, uint32_t index)
{
	end_connection(link, index);
	link->spare[link->n_spare++] = index;
}

void link_close_all(struct link *link)
{
	for (uint32_t i = 0; i < link->n_connections; i++)
		if (link->connections[i].fd >= 0)
			drop_connection(link, i);
}

void link_free(struct link *link)
{
	link_close_all(link);
	if (link->epoll >= 0)
		close(link->epoll);
	free(link->connections);
	free(link->spare);
	free(link->dirty);
	free(link->lost);
	free(link->stream);
	free(link->datagrams);
	free(link);
}

struct outbox *link_outbox(struct link *link)
{
	return &link->outbox;
}

struct outbox *link_urgent(struct link *link)
{
	return &link->urgent;
}

struct counts *link_counts(struct link *link)
{
	return &link->counts;
}

static void outbox_sent(struct outbox *outbox, unsigned count)
{
	outbox->first += count;
	if (outbox->first == outbox->used)
		outbox->first = outbox->used = 0;
}

static void count_datagram(struct link *link, const struct outgoing *m, bool sent)
{
	count_sent(link, m->kind, m->again, sent);
}

static void flush_udp(struct outbox *outbox, unsigned count)
{
	struct link *link = outbox->owner;
	struct outgoing *messages = outbox->messages + outbox->first;
	struct mmsghdr headers[OUTBOX_MESSAGES];
	struct iovec parts[OUTBOX_MESSAGES];
	unsigned done = 0, tries = 0;

	for (unsigned i = 0; i < count; i++) {
		parts[i] = (struct iovec){ messages[i].text, messages[i].size };
		headers[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1 };
		if (!link->connected) {
			headers[i].msg_hdr.msg_name = &messages[i].to.address;
			headers[i].msg_hdr.msg_namelen = sizeof(messages[i].to.address);
		}
	}
	while (done < count) {
		int sent = sendmmsg(link->socket, headers + done, count - done, MSG_NOSIGNAL);

		if (sent > 0) {
			for (int i = 0; i < sent; i++)
				count_datagram(link, &messages[done++], true);
			tries = 0;
			continue;
		}
		count_error(link->counts.send_errors, errno);
		if (errno == EAGAIN) {
			struct pollfd ready = { .fd = link->socket, .events = POLLOUT };

			poll(&ready, 1, 1);
		}
		/*
		 * After an error, send the datagram once more. If the error is ECONNREFUSED, its cause was an earlier
		 * datagram, and the kernel reported the error instead of sending this datagram.
		 */
		if (tries++ == 0)
			continue;
		count_datagram(link, &messages[done++], false);
		tries = 0;
	}
	outbox_sent(outbox, count);
}

static struct connection *find_connection(const struct link *link, uint32_t index, uint32_t generation)
{
	struct connection *c = index < link->n_connections ? &link->connections[index] : NULL;

	return c && c->fd >= 0 && c->generation == generation ? c : NULL;
}

/* Return the index of a free entry of `connections`, or UINT32_MAX if memory runs out. */
static uint32_t take_index(struct link *link)
{
	if (!link->n_spare && link->n_connections == link->room) {
		uint32_t room = link->room ? 2 * link->room : 64;
		void *connections = realloc(link->connections, room * sizeof(*link->connections));
		void *spare = realloc(link->spare, room * sizeof(*link->spare));
		void *dirty = realloc(link->dirty, room * sizeof(*link->dirty));
		void *lost = realloc(link->lost, room * sizeof(*link->lost));

		link->connections = connections ? connections : link->connections;
		link->spare = spare ? spare : link->spare;
		link->dirty = dirty ? dirty : link->dirty;
		link->lost = lost ? lost : link->lost;
		if (!connections || !spare || !dirty || !lost)
			return UINT32_MAX;
		link->room = room;
	}
	if (link->n_spare)
		return link->spare[--link->n_spare];
	link->connections[link->n_connections] = (struct connection){ .fd = -1 };
	return link->n_connections++;
}

/* Add a connection that owns the descriptor. On failure, close the descriptor. */
static struct connection *add_connection(struct link *link, int fd, bool dialled, uint64_t owner)
{
	uint32_t index = take_index(link);
	struct connection *c;

	if (index == UINT32_MAX) {
		close_with_errno(fd);
		return NULL;
	}
	c = &link->connections[index];
	*c = (struct connection){ .fd = fd,
				  .generation = c->generation,
				  .owner = owner,
				  .dialled = dialled,
				  .dirty = c->dirty,
				  .connecting = dialled };
	if (!watch(link, fd, EPOLL_CTL_ADD, EPOLLIN, index, c->generation)) {
		drop_connection(link, index);
		return NULL;
	}
	link->counts.connections++;
	return c;
}

bool link_connect(struct link *link, const struct sockaddr_in *local, const struct sockaddr_in *remote,
		  uint64_t owner, struct peer *peer)
{
	struct sockaddr_in any_port = *local;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct connection *c;
	int on = 1;

	any_port.sin_port = 0;
	if (fd >= 0) {
		set_buffers(fd, link->buffer_bytes);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		/*
		 * let connect() choose the local port, because connect(), unlike bind(), can share a port between
		 * remote addresses
		 */
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	}
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&any_port, sizeof(any_port)) ||
	     (connect(fd, (const struct sockaddr *)remote, sizeof(*remote)) && errno != EINPROGRESS)))
		fd = close_with_errno(fd);
	c = fd >= 0 ? add_connection(link, fd, true, owner) : NULL;
	if (!c) {
		count_error(link->counts.send_errors, errno);
		link->counts.connections_lost++;
		*peer = (struct peer){ .address = *remote, .connection = NO_CONNECTION };
		return false;
	}
	*peer = (struct peer){ .address = *remote,
			       .connection = (uint32_t)(c - link->connections),
			       .generation = c->generation };
	return true;
}

bool link_is_open(const struct link *link, const struct peer *peer)
{
	return find_connection(link, peer->connection, peer->generation) != NULL;
}

static void mark_dirty(struct link *link, struct connection *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	link->dirty[link->n_dirty++] = (uint32_t)(c - link->connections);
}

void link_close(struct link *link, const struct peer *peer)
{
	struct connection *c = find_connection(link, peer->connection, peer->generation);

	if (!c)
		return;
	c->closing = true;
	mark_dirty(link, c);
}

/*
 * End a lost connection. report_losses() informs the agent later, because the agent may be writing a message now.
 */
static void lose(struct link *link, struct connection *c, int error)
{
	uint32_t index = (uint32_t)(c - link->connections);
	bool dialled = c->dialled;

	if (error)
		count_error(link->counts.receive_errors, error);
	if (c->closing || !(error || dialled)) {
		drop_connection(link, index);
		return;
	}
	link->counts.connections_lost++;
	end_connection(link, index);
	if (dialled)
		link->lost[link->n_lost++] = index;
	else
		link->spare[link->n_spare++] = index;
}

static void report_losses(struct link *link)
{
	while (link->n_lost) {
		uint32_t index = link->lost[--link->n_lost];
		uint64_t owner = link->connections[index].owner;

		link->spare[link->n_spare++] = index;
		link->lost_callback(link->context, owner, clock_ns());
	}
}

/* Enlarge an array to at least `needed` items, and return it. Return NULL if memory runs out. */
static void *grow(void *array, size_t *room, size_t needed, size_t item)
{
	size_t more = *room ? *room : 4096 / item;
	void *grown;

	while (more < needed)
		more *= 2;
	if (more == *room)
		return array;
	grown = realloc(array, more * item);
	*room = grown ? more : *room;
	return grown;
}

static bool append(struct connection *c, const struct outgoing *m)
{
	size_t size = c->out_size + m->size;
	char *out = size <= OUT_BYTES_MAX ? grow(c->out, &c->out_room, size, sizeof(*c->out)) : NULL;
	struct unsent *unsent;

	if (!out)
		return false;
	c->out = out;
	unsent = grow(c->unsent, &c->unsent_room, c->n_unsent + 1, sizeof(*c->unsent));
	if (!unsent)
		return false;
	c->unsent = unsent;
	memcpy(c->out + c->out_size, m->text, m->size);
	c->out_size = size;
	c->unsent[c->n_unsent++] = (struct unsent){ m->size, m->kind, m->again };
	return true;
}

/* Remove `bytes` bytes that the kernel has accepted. Count each message that the kernel has accepted completely. */
static void taken(struct link *link, struct connection *c, size_t bytes)
{
	size_t whole = 0;

	c->out_size -= bytes;
	memmove(c->out, c->out + bytes, c->out_size);
	for (; whole < c->n_unsent && c->unsent[whole].size <= bytes; whole++) {
		bytes -= c->unsent[whole].size;
		count_sent(link, c->unsent[whole].kind, c->unsent[whole].again, true);
	}
	c->n_unsent -= whole;
	memmove(c->unsent, c->unsent + whole, c->n_unsent * sizeof(*c->unsent));
	if (c->n_unsent)
		c->unsent[0].size -= bytes;
}

/* Send as many bytes as the kernel accepts, and let epoll report when it accepts more. */
static void write_out(struct link *link, struct connection *c)
{
	uint32_t index = (uint32_t)(c - link->connections);
	ssize_t sent = c->out_size ? send(c->fd, c->out, c->out_size, MSG_NOSIGNAL) : 0;

	if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) {
		lose(link, c, errno);
		return;
	}
	if (sent > 0) {
		c->connecting = false;
		taken(link, c, (size_t)sent);
	}
	if (!c->out_size) {
		count_blocked(link, c);
	} else if (!c->blocked_ns && !c->connecting) {
		link->counts.blocked++;
		c->blocked_ns = clock_ns();
	}
	if (c->writing != (c->out_size > 0)) {
		c->writing = c->out_size > 0;
		watch(link, c->fd, EPOLL_CTL_MOD, c->writing ? EPOLLIN | EPOLLOUT : EPOLLIN, index,
		      c->generation);
	}
	if (c->closing && !c->out_size)
		drop_connection(link, index);
}

static void flush_tcp(struct outbox *outbox, unsigned count)
{
	struct link *link = outbox->owner;

	for (unsigned i = 0; i < count; i++) {
		struct outgoing *m = &outbox->messages[outbox->first + i];
		struct connection *c = find_connection(link, m->to.connection, m->to.generation);

		if (c && append(c, m))
			mark_dirty(link, c);
		else
			count_sent(link, m->kind, m->again, false);
	}
	outbox_sent(outbox, count);
	for (uint32_t i = 0; i < link->n_dirty; i++) {
		struct connection *c = &link->connections[link->dirty[i]];

		c->dirty = false;
		if (c->fd >= 0 && (!c->writing || c->closing))
			write_out(link, c);
	}
	link->n_dirty = 0;
}

void link_flush(struct link *link)
{
	if (outbox_waiting(&link->outbox) || link->n_dirty)
		link->outbox.flush(&link->outbox, outbox_waiting(&link->outbox));
}

void link_flush_one(struct link *link)
{
	if (link->reliable)
		link_flush(link);
	else if (outbox_waiting(&link->outbox))
		flush_udp(&link->outbox, 1);
}

void link_flush_urgent(struct link *link)
{
	link->urgent.flush(&link->urgent, outbox_waiting(&link->urgent));
}

static int receive_udp(struct link *link)
{
	uint64_t now_ns;
	int count;

	for (int i = 0; i < BATCH; i++) {
		link->in_parts[i] =
			(struct iovec){ link->datagrams + (size_t)i * DATAGRAM_BYTES, SIP_MESSAGE_MAX };
		link->in[i].msg_hdr = (struct msghdr){ .msg_name = &link->in_from[i],
						       .msg_namelen = sizeof(link->in_from[i]),
						       .msg_iov = &link->in_parts[i],
						       .msg_iovlen = 1 };
	}
	count = recvmmsg(link->socket, link->in, BATCH, MSG_DONTWAIT, NULL);
	if (count < 0) {
		if (errno != EAGAIN && errno != EINTR)
			count_error(link->counts.receive_errors, errno);
		return 0;
	}
	now_ns = clock_ns();
	for (int i = 0; i < count; i++) {
		struct peer from = { .address = link->in_from[i], .connection = NO_CONNECTION };

		link->received(link->context, link->in_parts[i].iov_base, link->in[i].msg_len, &from, now_ns);
	}
	return count;
}

static bool wait_for_events(struct link *link, uint64_t wait_ns, struct epoll_event *events, int *count)
{
	struct timespec timeout = { (time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S) };

	*count = epoll_pwait2(link->epoll, events, EVENTS, &timeout, NULL);
	if (*count < 0 && errno == ENOSYS) {
		/* Linux 5.10 lacks epoll_pwait2, and epoll_wait resolves only 1 ms, so ppoll waits for the epoll set */
		struct pollfd poll = { .fd = link->epoll, .events = POLLIN };

		*count = ppoll(&poll, 1, &timeout, NULL) > 0 ? epoll_wait(link->epoll, events, EVENTS, 0) : 0;
	}
	return *count > 0;
}

static void accept_all(struct link *link)
{
	struct sockaddr_in remote;
	socklen_t size = sizeof(remote);
	struct connection *c;
	int fd;

	while ((fd = accept4(link->socket, (struct sockaddr *)&remote, &size,
			     SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		c = add_connection(link, fd, false, 0);
		if (c)
			c->remote = remote;
		size = sizeof(remote);
	}
	if (errno != EAGAIN && errno != EINTR)
		count_error(link->counts.receive_errors, errno);
}

/* The connection that is being read, and the time of the read. */
struct reading {
	struct link *link;
	struct peer from;
	uint64_t now_ns;
};

static void on_message(void *context, const char *text, const struct frame *frame)
{
	const struct reading *reading = context;
	struct link *link = reading->link;

	link->received(link->context, text, frame->length, &reading->from, reading->now_ns);
}

static void read_stream(struct link *link, uint32_t index)
{
	struct connection *c = &link->connections[index];
	struct reading reading = {
		.link = link,
		.from = { .address = c->remote, .connection = index, .generation = c->generation }
	};
	size_t size = c->in.size, used;
	bool followed;
	ssize_t got;

	got = recv(c->fd, link->stream + size, STREAM_READ, 0);
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			lose(link, c, got < 0 ? errno : 0);
		return;
	}
	size = stream_resume(&c->in, link->stream) + (size_t)got;
	reading.now_ns = clock_ns();
	followed = stream_cut(link->stream, size, on_message, &reading, &used);
	link->counts.unparsable += !followed;
	/* look the connection up again, because the handler may have opened connections and moved the array */
	c = find_connection(link, index, reading.from.generation);
	if (c && !(followed && stream_keep(&c->in, link->stream + used, size - used)))
		lose(link, c, EPROTO);
}

static bool poll_tcp(struct link *link, uint64_t wait_ns)
{
	struct epoll_event events[EVENTS];
	int count;

	report_losses(link);
	if (!wait_for_events(link, wait_ns, events, &count))
		return false;
	for (int i = 0; i < count; i++) {
		uint32_t index = (uint32_t)events[i].data.u64;
		uint32_t generation = (uint32_t)(events[i].data.u64 >> 32);
		struct connection *c;

		if (index == LISTENER) {
			accept_all(link);
			continue;
		}
		c = find_connection(link, index, generation);
		if (c && events[i].events & EPOLLOUT)
			write_out(link, c);
		c = find_connection(link, index, generation);
		if (c && events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			read_stream(link, index);
	}
	report_losses(link);
	return true;
}

bool link_poll(struct link *link, uint64_t wait_ns)
{
	struct epoll_event events[EVENTS];
	int count;

	if (link->reliable)
		return poll_tcp(link, wait_ns);
	if (receive_udp(link))
		return true;
	return wait_ns && wait_for_events(link, wait_ns, events, &count) && receive_udp(link);
}
