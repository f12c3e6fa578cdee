// SPDX-License-Identifier: MIT
#include "sched.h"
#include "sim.h"

/* SEE net/ipv4/udp.c: __udp_enqueue_schedule_skb(); since Linux 6.15 what is queued has to fit within the limit,
 * before that a datagram is refused when what is queued already exceeds it */
static bool is_full(const struct sim *sim, uint64_t size)
{
	const struct socket *s = &sim->socket;

	if (sim->model.queue_rule == QUEUE_UNTIL_OVER)
		return s->charged > sim->model.receive_buffer_bytes;
	return s->charged && s->charged + size > sim->model.receive_buffer_bytes;
}

static void wake(struct sim *sim, struct worker *w, struct cpu *cpu)
{
	w->looked = false;
	w->phase = PHASE_TAKE;
	sched_wake(sim, w, cpu);
}

static struct worker *next_waiter(struct sim *sim)
{
	struct socket *s = &sim->socket;
	struct worker *w = s->waiters[s->first_waiter];

	if (++s->first_waiter == sim->model.workers)
		s->first_waiter = 0;
	s->n_waiters--;
	return w;
}

uint32_t socket_deliver(struct sim *sim, struct cpu *cpu, const struct timer *message)
{
	struct socket *s = &sim->socket;
	uint64_t size = sim->model.truesize[message->kind];
	struct timer queued = *message;
	uint32_t woken;

	queued.at = sim->now;
	if (is_full(sim, size)) {
		sim->counts.refused++;
		queued.rmem = (uint32_t)s->charged;
		trace_drop(sim, cpu, &queued);
		return 0;
	}
	s->charged += size;
	queued.rmem = (uint32_t)s->charged;
	if (!fifo_push(&s->queue, queued))
		sim->failure = "not enough memory";
	/* SEE net/core/sock.c: sock_def_readable(); the exclusive waiter that has waited longest, or with the
	 * level-triggered epoll of OpenSIPS every one (kernel/sched/wait.c: __wake_up_common()) */
	woken = sim->model.wake_all ? s->n_waiters : s->n_waiters > 0;
	for (uint32_t n = woken; n; n--)
		wake(sim, next_waiter(sim), cpu);
	return woken;
}

bool socket_take(struct sim *sim, struct worker *w)
{
	struct socket *s = &sim->socket;

	if (!s->queue.length)
		return false;
	/* SEE net/ipv4/udp.c: __skb_recv_udp() splices the queue to the reader's side when that is empty;
	 * udp_rmem_release() gives memory back in quarters of the limit while it is not */
	if (!s->reader)
		s->reader = s->queue.length;
	s->reader--;
	w->message = fifo_pop(&s->queue);
	s->deficit += sim->model.truesize[w->message.kind];
	if (!sim->model.deferred_release || !s->reader || s->deficit >= sim->model.receive_buffer_bytes / 4) {
		s->charged -= s->deficit;
		s->deficit = 0;
	}
	sim->counts.received++;
	return true;
}

void socket_wait(struct sim *sim, struct worker *w)
{
	struct socket *s = &sim->socket;
	uint32_t last = s->first_waiter + s->n_waiters++;

	s->waiters[last < sim->model.workers ? last : last - sim->model.workers] = w;
}
