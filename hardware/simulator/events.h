/* SPDX-License-Identifier: MIT */
/*
 * The search for the next event. The model has few sources of events, and each source has the time of its next event.
 * The winner tree finds the earliest of these times. A change of one time takes O(log n) steps for n sources. Timers of
 * equal length expire in the order in which they were set. Each length therefore has a queue, and the head of the queue
 * is a source.
 */
#ifndef SIPSIM_EVENTS_H
#define SIPSIM_EVENTS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define NEVER UINT64_MAX

struct tree {
	uint32_t size; /* number of leaves, a power of two */
	/*
	 * One source of events per node. The root has index 1, and node n has the children 2 n and 2 n + 1. An inner node
	 * holds the source with the earliest event below it. The leaves, from index `size` on, hold the sources in order.
	 */
	uint32_t *winner;
	uint64_t *at; /* time of the next event of each source, or NEVER */
};

bool tree_init(struct tree *tree, uint32_t sources);
void tree_free(struct tree *tree);

/*
 * Set the time of a source's next event. Among sources with the same time, the source with the lowest number comes
 * first.
 */
static inline void tree_set(struct tree *tree, uint32_t source, uint64_t at)
{
	uint32_t *winner = tree->winner;

	if (tree->at[source] == at)
		return;
	tree->at[source] = at;
	for (uint32_t node = (tree->size + source) >> 1; node; node >>= 1) {
		uint32_t left = winner[2 * node], right = winner[2 * node + 1];
		uint32_t best = tree->at[right] < tree->at[left] ? right : left;

		if (winner[node] == best && best != source)
			return;
		winner[node] = best;
	}
}

static inline uint32_t tree_first(const struct tree *tree)
{
	return tree->winner[1];
}

/* A datagram, or a timer of a call. */
struct timer {
	uint64_t at;
	uint64_t since; /* for a message in the SPS, its arrival time */
	uint32_t call;
	uint32_t rmem; /* bytes that the message takes in the socket's queue */
	uint8_t kind;  /* one of enum trace_kind */
	uint8_t again; /* number of earlier transmissions */
};

/* A queue in a ring buffer that grows when it is full. */
struct fifo {
	struct timer *ring;
	uint32_t capacity; /* a power of two, or 0 */
	uint32_t head;
	uint32_t length;
};

bool fifo_grow(struct fifo *fifo);
void fifo_free(struct fifo *fifo);

static inline bool fifo_push(struct fifo *fifo, struct timer timer)
{
	if (fifo->length == fifo->capacity && !fifo_grow(fifo))
		return false;
	fifo->ring[(fifo->head + fifo->length++) & (fifo->capacity - 1)] = timer;
	return true;
}

static inline struct timer *fifo_at(const struct fifo *fifo, uint32_t place)
{
	return &fifo->ring[(fifo->head + place) & (fifo->capacity - 1)];
}

static inline uint64_t fifo_next(const struct fifo *fifo)
{
	return fifo->length ? fifo->ring[fifo->head].at : NEVER;
}

static inline struct timer fifo_pop(struct fifo *fifo)
{
	struct timer timer = fifo->ring[fifo->head];

	fifo->head = (fifo->head + 1) & (fifo->capacity - 1);
	fifo->length--;
	return timer;
}

/* Timers of any length. Timers with the same time expire in the order in which they were set. */
struct heap {
	struct heap_entry {
		struct timer timer;
		uint64_t order;
	} * entries;
	uint32_t capacity;
	uint32_t length;
	uint64_t pushed;
};

bool heap_push(struct heap *heap, struct timer timer);
struct timer heap_pop(struct heap *heap);
void heap_free(struct heap *heap);

static inline uint64_t heap_next(const struct heap *heap)
{
	return heap->length ? heap->entries[0].timer.at : NEVER;
}
#endif
