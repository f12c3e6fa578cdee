// SPDX-License-Identifier: MIT
#include "sched.h"
#include "sim.h"

static struct socket *front_socket(const struct sim *sim)
{
	return &sim->sockets[sim->model.sockets];
}

bool sockets_init(struct sim *sim)
{
	const struct model *m = &sim->model;
	uint64_t streams = m->choice == CHOICE_HOLDER ? 1 + (m->connections ? m->connections : m->calls) : 0;

	sim->sockets = calloc(m->sockets + 1, sizeof(*sim->sockets));
	sim->connections = calloc(streams, sizeof(*sim->connections));
	sim->connections_held = calloc(m->workers, sizeof(*sim->connections_held));
	if (!sim->sockets || (streams && !sim->connections) || !sim->connections_held)
		return false;
	for (uint32_t i = 0; i <= m->sockets; i++) {
		struct socket *s = &sim->sockets[i];

		s->room = i < m->sockets ? (m->workers + m->sockets - 1) / m->sockets : m->fronts + 1;
		s->buffer_bytes = m->receive_buffer_bytes;
		if (i < m->compared) {
			s->room = m->compared_workers[i];
			s->buffer_bytes = m->compared_buffer_bytes[i];
		}
		s->waiters = calloc(s->room, sizeof(*s->waiters));
		if (!s->waiters)
			return false;
	}
	return true;
}

void sockets_free(struct sim *sim)
{
	uint64_t streams = sim->model.connections ? sim->model.connections : sim->model.calls;

	for (uint32_t i = 0; sim->sockets && i <= sim->model.sockets; i++) {
		fifo_free(&sim->sockets[i].queue);
		free(sim->sockets[i].waiters);
	}
	for (uint64_t i = 0; sim->connections && sim->model.choice == CHOICE_HOLDER && i <= streams; i++)
		fifo_free(&sim->connections[i].unread);
	free(sim->sockets);
	free(sim->connections);
	free(sim->connections_held);
}

/*
 * Return whether the socket refuses a datagram, as the kernel's __udp_enqueue_schedule_skb() does. Since Linux 6.15, the queue must stay within
 * its limit. Before Linux 6.15, the socket refused a datagram only if the queue already exceeded the limit.
 */
static bool is_full(const struct sim *sim, const struct socket *s, uint64_t size)
{
	bool full = sim->model.queue_rule == QUEUE_UNTIL_OVER
			    ? s->charged > s->buffer_bytes
			    : s->charged && s->charged + size > s->buffer_bytes;

	return full && !sim->model.streams;
}

static void wake(struct sim *sim, struct worker *w, struct cpu *cpu)
{
	w->looked = false;
	w->phase = PHASE_TAKE;
	sched_wake(sim, w, cpu);
}

static struct worker *next_waiter(struct socket *s)
{
	struct worker *w = s->waiters[s->first_waiter];

	if (++s->first_waiter == s->room)
		s->first_waiter = 0;
	s->n_waiters--;
	return w;
}

/*
 * Take the lock of a socket's queue for socket_lock_ns, after all workers and softirqs that asked for the lock earlier
 * (a queued spinlock). Return the time until the lock is released again.
 * ASSUME that nothing interrupts a worker or softirq while it waits for the lock or holds the lock, because the kernel
 * then allows neither preemption nor softirqs (spin_lock_bh()).
 */
static uint64_t take_lock(struct sim *sim, struct socket *s)
{
	uint64_t from = s->locked_until > sim->now ? s->locked_until : sim->now;

	s->locked_until = from + sim->model.socket_lock_ns;
	return s->locked_until - sim->now;
}

/*
 * Queue a message at a socket. `queued.at` is the time when the message reached the socket or its TCP connection. Return
 * the time that a softirq then needs for the socket's lock and for waking workers.
 */
static uint64_t enqueue(struct sim *sim, struct socket *s, struct cpu *cpu, struct timer queued)
{
	uint64_t size = sim->model.truesize[queued.kind], locked_ns;
	uint32_t woken;

	s->chosen++;
	if (is_full(sim, s, size)) {
		sim->counts.refused++;
		queued.rmem = (uint32_t)s->charged;
		trace_drop(sim, cpu, &queued);
		return 0;
	}
	s->charged += size;
	queued.rmem = (uint32_t)s->charged;
	if (!fifo_push(&s->queue, queued))
		sim->failure = "not enough memory";
	locked_ns = take_lock(sim, s);
	/*
	 * Wake the exclusive waiter that has waited longest, as the kernel's sock_def_readable() in net/core/sock.c
	 * does. With OpenSIPS's level-triggered epoll, wake every waiter (kernel/sched/wait.c: __wake_up_common()).
	 */
	woken = sim->model.wake_all ? s->n_waiters : s->n_waiters > 0;
	for (uint32_t n = woken; n; n--)
		wake(sim, next_waiter(s), cpu);
	return locked_ns + woken * sim->model.wake_ns;
}

/* Return the number of the UAC's connection that carries the messages of a call. */
static uint32_t connection_of(const struct sim *sim, uint32_t call)
{
	return sim->model.connections ? call % sim->model.connections : call;
}

static struct socket *hashed(const struct sim *sim, uint32_t call)
{
	uint64_t key = sim->model.choice == CHOICE_CALL ? call : connection_of(sim, call);

	return &sim->sockets[(call_hash(key) >> 1) % sim->model.sockets];
}

static void let_go(struct sim *sim, struct connection *c)
{
	if (c->holder)
		sim->connections_held[c->holder->id]--;
	c->holder = NULL;
}

static struct connection *stream(const struct sim *sim, const struct timer *message)
{
	bool from_uas = message->kind == TRACE_KIND_180 || message->kind == TRACE_KIND_200_INVITE ||
			message->kind == TRACE_KIND_200_BYE;

	return &sim->connections[from_uas ? 0 : 1 + connection_of(sim, message->call)];
}

/*
 * Pass a message to the worker that holds the message's connection. The front reads connections that no worker holds.
 */
static uint64_t deliver_stream(struct sim *sim, struct cpu *cpu, const struct timer *message)
{
	struct connection *c = stream(sim, message);

	if (c->holder && sim->now > c->last + sim->model.keep_ns)
		let_go(sim, c);
	c->last = sim->now;
	if (c->holder)
		return enqueue(sim, c->holder->socket, cpu, *message);
	if (!fifo_push(&c->unread, *message))
		sim->failure = "not enough memory";
	return c->unread.length == 1 ? enqueue(sim, front_socket(sim), cpu, *message) : 0;
}

uint64_t socket_deliver(struct sim *sim, struct cpu *cpu, const struct timer *message)
{
	struct timer come = *message;
	struct socket *s = sim->sockets;

	come.at = sim->now;
	if (sim->model.choice == CHOICE_HOLDER)
		return deliver_stream(sim, cpu, &come);
	if (sim->model.fronts)
		s = front_socket(sim);
	else if (sim->model.compared)
		s = &sim->sockets[sim->schedule.calls[come.call].instance];
	else if (sim->model.sockets > 1)
		s = hashed(sim, come.call);
	return enqueue(sim, s, cpu, come);
}

/* Pass a connection to the worker with the fewest connections, as send2child() in Kamailio's core/tcp_main.c does. */
static void pass(struct sim *sim, struct cpu *cpu, struct connection *c)
{
	struct worker *fewest = sim->workers;

	for (uint32_t i = 1; i < sim->model.workers; i++)
		if (sim->connections_held[i] < sim->connections_held[fewest->id])
			fewest = &sim->workers[i];
	sim->connections_held[fewest->id]++;
	c->holder = fewest;
	while (c->unread.length) {
		struct timer message = fifo_pop(&c->unread);

		enqueue(sim, fewest->socket, cpu, message);
	}
}

void socket_forward(struct sim *sim, struct cpu *cpu, const struct timer *message)
{
	struct timer come = *message;

	sim->counts.passed++;
	if (sim->model.choice == CHOICE_HOLDER) {
		pass(sim, cpu, stream(sim, message));
		return;
	}
	come.at = sim->now;
	enqueue(sim, hashed(sim, come.call), cpu, come);
}

void socket_close(struct sim *sim, uint32_t call)
{
	if (sim->model.choice == CHOICE_HOLDER && !sim->model.connections)
		let_go(sim, &sim->connections[1 + call]);
}

bool socket_take(struct sim *sim, struct worker *w)
{
	struct socket *s = w->socket;
	const struct cpu *cpu = &sim->cpus[w->cpu];

	if (!s->queue.length)
		return false;
	w->left_ns = take_lock(sim, s);
	w->spun_ns += w->left_ns - sim->model.socket_lock_ns;
	if (s->user && s->user != cpu) {
		w->transfers++;
		w->cold_ns += sim->model.transfer_ns;
	}
	s->user = cpu;
	/*
	 * Move the queue to the reader's side when the reader's side is empty (kernel: __skb_recv_udp() in
	 * net/ipv4/udp.c), and when memory is released. While the reader's side is not empty, udp_rmem_release()
	 * releases memory in quarters of the limit.
	 */
	if (!s->reader)
		s->reader = s->queue.length;
	s->reader--;
	w->message = fifo_pop(&s->queue);
	s->deficit += sim->model.truesize[w->message.kind];
	if (!sim->model.deferred_release || !s->reader || s->deficit >= s->buffer_bytes / 4) {
		s->charged -= s->deficit;
		s->deficit = 0;
		s->reader = s->queue.length;
	}
	sim->counts.received += !is_front(sim, w);
	return true;
}

void socket_wait(struct worker *w)
{
	struct socket *s = w->socket;
	uint32_t last = s->first_waiter + s->n_waiters++;

	s->waiters[last < s->room ? last : last - s->room] = w;
}
