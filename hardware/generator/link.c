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
#include "link.h"

#define BATCH          16
#define DATAGRAM_BYTES (65536 + 4096 + 64) /* the excess keeps the slots out of each other's cache sets */
#define EVENTS         64
#define STREAM_BYTES   (1 << 18)
#define STREAM_BUFFER  (1 << 16)    /* read at once, beside what is left over */
#define OUT_BYTES_MAX  (16UL << 20) /* unsent in a connection: it is stuck */
#define LISTENER       UINT32_MAX
#define BACKLOG        4096

struct connection {
	int fd; /* -1: free */
	uint32_t generation;
	uint64_t owner;
	bool closing;
	bool dirty;   /* in link->dirty */
	bool writing; /* EPOLLOUT is armed */
	char *rest;   /* of the stream: the start of a message */
	size_t rest_size;
	char *out;
	size_t out_size;
	size_t out_room;
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
	link_lost *lost;
	void *context;
	/* UDP */
	char *datagrams;
	struct mmsghdr in[BATCH];
	struct iovec in_parts[BATCH];
	struct sockaddr_in in_from[BATCH];
	/* TCP */
	struct connection *connections;
	uint32_t n_connections;
	uint32_t *spare; /* free connections */
	uint32_t n_spare;
	uint32_t *dirty; /* connections with something to send or to close */
	uint32_t n_dirty;
	uint32_t room; /* of the three arrays */
	char *stream;
};

uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

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

int open_tcp_listener(const struct sockaddr_in *local)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
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
	link->lost = lost;
	link->context = context;
}

static void drop_connection(struct link *link, uint32_t index)
{
	struct connection *c = &link->connections[index];

	close(c->fd);
	c->fd = -1;
	c->generation++;
	free(c->rest);
	free(c->out);
	c->rest = c->out = NULL;
	c->rest_size = c->out_size = c->out_room = 0;
	link->spare[link->n_spare++] = index;
}

void link_free(struct link *link)
{
	for (uint32_t i = 0; i < link->n_connections; i++)
		if (link->connections[i].fd >= 0)
			drop_connection(link, i);
	if (link->epoll >= 0)
		close(link->epoll);
	free(link->connections);
	free(link->spare);
	free(link->dirty);
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

static void count_sent(struct link *link, const struct outgoing *m, bool sent)
{
	if (!sent)
		link->counts.not_sent[m->kind]++;
	else if (m->again)
		link->counts.sent_again[m->kind]++;
	else
		link->counts.sent[m->kind]++;
}

static void outbox_sent(struct outbox *outbox, unsigned count)
{
	outbox->first += count;
	if (outbox->first == outbox->used)
		outbox->first = outbox->used = 0;
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
				count_sent(link, &messages[done++], true);
			tries = 0;
			continue;
		}
		count_error(link->counts.send_errors, errno);
		if (errno == EAGAIN) {
			struct pollfd ready = { .fd = link->socket, .events = POLLOUT };

			poll(&ready, 1, 1);
		}
		/* ECONNREFUSED tells of an earlier datagram: this one was not even tried */
		if (tries++ == 0)
			continue;
		count_sent(link, &messages[done++], false);
		tries = 0;
	}
	outbox_sent(outbox, count);
}

static struct connection *find_connection(const struct link *link, uint32_t index, uint32_t generation)
{
	struct connection *c = index < link->n_connections ? &link->connections[index] : NULL;

	return c && c->fd >= 0 && c->generation == generation ? c : NULL;
}

/* A free connection's index; UINT32_MAX: not enough memory. */
static uint32_t take_index(struct link *link)
{
	if (!link->n_spare && link->n_connections == link->room) {
		uint32_t room = link->room ? 2 * link->room : 64;
		void *connections = realloc(link->connections, room * sizeof(*link->connections));
		void *spare = realloc(link->spare, room * sizeof(*link->spare));
		void *dirty = realloc(link->dirty, room * sizeof(*link->dirty));

		link->connections = connections ? connections : link->connections;
		link->spare = spare ? spare : link->spare;
		link->dirty = dirty ? dirty : link->dirty;
		if (!connections || !spare || !dirty)
			return UINT32_MAX;
		link->room = room;
	}
	if (link->n_spare)
		return link->spare[--link->n_spare];
	link->connections[link->n_connections] = (struct connection){ .fd = -1 };
	return link->n_connections++;
}

/* Takes over the descriptor; closes it if it cannot. */
static struct connection *add_connection(struct link *link, int fd, uint64_t owner, uint32_t events)
{
	uint32_t index = take_index(link);
	struct connection *c;
	int on = 1;

	if (index == UINT32_MAX) {
		close_with_errno(fd);
		return NULL;
	}
	c = &link->connections[index];
	*c = (struct connection){ .fd = fd, .generation = c->generation, .owner = owner, .dirty = c->dirty };
	c->writing = (events & EPOLLOUT) != 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!watch(link, fd, EPOLL_CTL_ADD, events, index, c->generation)) {
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
		/* the port is chosen by connect(), which may then reuse one for another remote */
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	}
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&any_port, sizeof(any_port)) ||
	     (connect(fd, (const struct sockaddr *)remote, sizeof(*remote)) && errno != EINPROGRESS)))
		fd = close_with_errno(fd);
	c = fd >= 0 ? add_connection(link, fd, owner, EPOLLIN | EPOLLOUT) : NULL;
	if (!c) {
		count_error(link->counts.send_errors, errno);
		link->counts.connections_lost++;
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

static void lose(struct link *link, struct connection *c, int error)
{
	uint64_t owner = c->owner;

	if (error) {
		count_error(link->counts.receive_errors, error);
		link->counts.connections_lost++;
	}
	drop_connection(link, (uint32_t)(c - link->connections));
	if (owner != LINK_NO_OWNER && link->lost)
		link->lost(link->context, owner, clock_ns());
}

static bool append(struct connection *c, const char *text, size_t size)
{
	if (c->out_size + size > c->out_room) {
		size_t room = c->out_room ? 2 * c->out_room : 4096;
		char *out;

		while (room < c->out_size + size)
			room *= 2;
		out = room <= OUT_BYTES_MAX ? realloc(c->out, room) : NULL;
		if (!out)
			return false;
		c->out = out;
		c->out_room = room;
	}
	memcpy(c->out + c->out_size, text, size);
	c->out_size += size;
	return true;
}

/* Write what the kernel takes; ask to be told when it takes more. */
static void write_out(struct link *link, struct connection *c)
{
	uint32_t index = (uint32_t)(c - link->connections);
	ssize_t sent = c->out_size ? send(c->fd, c->out, c->out_size, MSG_NOSIGNAL) : 0;

	if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) {
		lose(link, c, errno);
		return;
	}
	if (sent > 0) {
		c->out_size -= (size_t)sent;
		memmove(c->out, c->out + sent, c->out_size);
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
		bool taken = c && append(c, m->text, m->size);

		count_sent(link, m, taken);
		if (taken)
			mark_dirty(link, c);
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
	return *count > 0;
}

static void accept_all(struct link *link)
{
	int fd;

	while ((fd = accept4(link->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		set_buffers(fd, link->buffer_bytes);
		add_connection(link, fd, LINK_NO_OWNER, EPOLLIN);
	}
	if (errno != EAGAIN && errno != EINTR)
		count_error(link->counts.receive_errors, errno);
}

/* Hand on the whole messages; gives the bytes used, or -1 if the stream cannot be followed. */
static ssize_t cut_messages(struct link *link, const char *text, size_t size, const struct peer *from)
{
	uint64_t now_ns = clock_ns();
	size_t used = 0, skip, length;

	while (used < size) {
		switch (sip_cut_frame(text + used, size - used, &skip, &length)) {
		case SIP_FRAME_WHOLE:
			link->received(link->context, text + used + skip, length, from, now_ns);
			used += skip + length;
			break;
		case SIP_FRAME_PARTIAL:
			return (ssize_t)(used + skip);
		case SIP_FRAME_BROKEN:
			link->counts.unparsable++;
			return -1;
		}
	}
	return (ssize_t)used;
}

static void read_stream(struct link *link, uint32_t index)
{
	struct connection *c = &link->connections[index];
	struct peer from = { .connection = index, .generation = c->generation };
	size_t size = c->rest_size;
	ssize_t got, used;

	memcpy(link->stream, c->rest ? c->rest : "", size);
	got = recv(c->fd, link->stream + size, STREAM_BUFFER, 0);
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			lose(link, c, got < 0 ? errno : 0);
		return;
	}
	size += (size_t)got;
	used = cut_messages(link, link->stream, size, &from);
	/* the handler may have opened connections: the array may have moved */
	c = find_connection(link, index, from.generation);
	if (!c)
		return;
	free(c->rest);
	c->rest = NULL;
	c->rest_size = 0;
	if (used >= 0 && (size_t)used < size) {
		c->rest_size = size - (size_t)used;
		c->rest = malloc(c->rest_size);
		if (c->rest)
			memcpy(c->rest, link->stream + used, c->rest_size);
	}
	if (used < 0 || (c->rest_size && !c->rest))
		lose(link, c, EPROTO);
}

static bool poll_tcp(struct link *link, uint64_t wait_ns)
{
	struct epoll_event events[EVENTS];
	int count;

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
