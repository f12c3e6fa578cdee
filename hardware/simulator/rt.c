// SPDX-License-Identifier: MIT
/*
 * The queue of real-time workers (kernel/sched/rt.c). All real-time workers have the same priority, so one list is
 * enough. The running worker stays at the head of the list.
 */
#include "sched.h"

void rt_enqueue(struct cpu *cpu, struct worker *w, bool head)
{
	struct rt_rq *rq = &cpu->rt;
	uint32_t place = head ? 0 : rq->length;

	for (uint32_t i = rq->length++; i > place; i--)
		rq->queue[i] = rq->queue[i - 1];
	rq->queue[place] = w;
	w->on_rq = true;
}

void rt_dequeue(struct cpu *cpu, struct worker *w)
{
	struct rt_rq *rq = &cpu->rt;
	uint32_t place = 0;

	while (rq->queue[place] != w)
		place++;
	for (rq->length--; place < rq->length; place++)
		rq->queue[place] = rq->queue[place + 1];
	w->on_rq = false;
}
