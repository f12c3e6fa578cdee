// SPDX-License-Identifier: MIT
#include <string.h>
#include "events.h"

bool tree_init(struct tree *tree, uint32_t sources)
{
	memset(tree, 0, sizeof(*tree));
	for (tree->size = 2; tree->size < sources; tree->size *= 2)
		;
	tree->winner = calloc(2 * tree->size, sizeof(*tree->winner));
	tree->at = malloc(tree->size * sizeof(*tree->at));
	if (!tree->winner || !tree->at)
		return false;
	for (uint32_t i = 0; i < tree->size; i++) {
		tree->at[i] = NEVER;
		tree->winner[tree->size + i] = i;
	}
	for (uint32_t node = tree->size - 1; node; node--)
		tree->winner[node] = tree->winner[2 * node];
	return true;
}

void tree_free(struct tree *tree)
{
	free(tree->winner);
	free(tree->at);
}

bool fifo_grow(struct fifo *fifo)
{
	uint32_t capacity = fifo->capacity ? 2 * fifo->capacity : 64;
	struct timer *ring = calloc(capacity, sizeof(*ring));

	if (!ring)
		return false;
	for (uint32_t i = 0; i < fifo->length; i++)
		ring[i] = *fifo_at(fifo, i);
	free(fifo->ring);
	fifo->ring = ring;
	fifo->capacity = capacity;
	fifo->head = 0;
	return true;
}

void fifo_free(struct fifo *fifo)
{
	free(fifo->ring);
	memset(fifo, 0, sizeof(*fifo));
}

static bool earlier(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->timer.at != b->timer.at ? a->timer.at < b->timer.at : a->order < b->order;
}

bool heap_push(struct heap *heap, struct timer timer)
{
	struct heap_entry entry = { timer, heap->pushed++ };
	uint32_t place = heap->length;

	if (heap->length == heap->capacity) {
		uint32_t capacity = heap->capacity ? 2 * heap->capacity : 64;
		struct heap_entry *entries = realloc(heap->entries, capacity * sizeof(*entries));

		if (!entries)
			return false;
		heap->entries = entries;
		heap->capacity = capacity;
	}
	heap->length++;
	for (; place && earlier(&entry, &heap->entries[(place - 1) / 2]); place = (place - 1) / 2)
		heap->entries[place] = heap->entries[(place - 1) / 2];
	heap->entries[place] = entry;
	return true;
}

struct timer heap_pop(struct heap *heap)
{
	struct timer first = heap->entries[0].timer;
	struct heap_entry last = heap->entries[--heap->length];
	uint32_t place = 0, child;

	while ((child = 2 * place + 1) < heap->length) {
		if (child + 1 < heap->length && earlier(&heap->entries[child + 1], &heap->entries[child]))
			child++;
		if (!earlier(&heap->entries[child], &last))
			break;
		heap->entries[place] = heap->entries[child];
		place = child;
	}
	heap->entries[place] = last;
	return first;
}

void heap_free(struct heap *heap)
{
	free(heap->entries);
	memset(heap, 0, sizeof(*heap));
}
