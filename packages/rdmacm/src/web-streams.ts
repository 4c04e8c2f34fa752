/** A connection as a pair of Web streams. */
import {
  type ReadableByteStreamController,
  ReadableStream,
  WritableStream,
  type WritableStreamDefaultController,
} from 'node:stream/web';
import { READABLE_BYTES, type StreamOptions, WRITABLE_BYTES } from './connection-stream.ts';
import { checkChunk } from './options.ts';
import type { StreamChannel } from './stream-channel.ts';

/** Both directions of a connection. */
export interface StreamPair {
  /** A byte stream: readers may bring buffers of their own (`mode: 'byob'`). */
  readable: ReadableStream<Uint8Array>;
  /** Takes bytes, or text as UTF-8. `close` resolves when the peer's adapter has all. */
  writable: WritableStream<Uint8Array | string>;
}

/** Streams that end the connection when both have ended; `cancel` and `abort` end it at once, and the peer sees an error. */
export function webStreams(
  channel: StreamChannel,
  options: Omit<StreamOptions, 'allowHalfOpen'>,
): StreamPair {
  const { readableHighWaterMark = READABLE_BYTES, writableHighWaterMark = WRITABLE_BYTES, signal } = options;
  let reading!: ReadableByteStreamController;
  let writing!: WritableStreamDefaultController;
  let open = 2;
  let closing: Promise<void> | undefined;

  /** Ends both directions with an error: that of a call, or the connection's own. */
  const fail = (error: unknown): Promise<void> => {
    if (closing) return closing;
    signal?.removeEventListener('abort', onAbort);
    reading.error(error);
    writing.error(error);
    closing = channel.close(false);
    return closing;
  };
  const onAbort = () => void fail(signal?.reason);
  /** One direction has ended in order. */
  const ended = (): void => {
    if (--open > 0 || closing) return;
    signal?.removeEventListener('abort', onAbort);
    closing = channel.close(true);
  };

  const readable = new ReadableStream(
    {
      type: 'bytes',
      start: (controller: ReadableByteStreamController) => {
        reading = controller;
      },
      async pull(controller: ReadableByteStreamController) {
        try {
          const bytes = await channel.read();
          if (closing) return;
          if (bytes) controller.enqueue(bytes as Uint8Array<ArrayBuffer>);
          else {
            controller.close();
            controller.byobRequest?.respond(0);
            ended();
          }
        } catch (error) {
          await fail(error);
        }
      },
      cancel: (reason) => fail(reason ?? new Error('the reader has cancelled')),
    },
    { highWaterMark: readableHighWaterMark },
  );
  const text = new TextEncoder();
  const writable = new WritableStream<Uint8Array | string>(
    {
      start: (controller) => {
        writing = controller;
      },
      async write(chunk) {
        try {
          checkChunk(chunk);
          await channel.write([typeof chunk === 'string' ? text.encode(chunk) : chunk]);
        } catch (error) {
          await failing(error);
        }
      },
      async close() {
        await channel.end().catch(failing);
        ended();
      },
      abort: (reason) => fail(reason),
    },
    {
      highWaterMark: writableHighWaterMark,
      // That of another type is for `write` to refuse: an error here would not reach the connection.
      size: (chunk: { length?: number } | null | undefined) => chunk?.length ?? 1,
    },
  );
  const failing = async (error: unknown): Promise<never> => {
    void fail(error);
    throw error;
  };
  channel.onFailure = (error) => void fail(error);
  if (signal?.aborted) onAbort();
  else signal?.addEventListener('abort', onAbort, { once: true });
  return { readable, writable };
}
