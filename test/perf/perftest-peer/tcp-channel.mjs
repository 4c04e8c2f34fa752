// The channel over TCP. Each exchange: the client writes first, the server reads first.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { KEY_BYTES, keyLine, keyOf } from './messages.mjs';

/** Messages of known lengths over a socket. Fails after `patience` ms without a byte, and when the peer is gone. */
class TcpChannel {
  #socket;
  #first;
  #patience;
  #chunks = [];
  #bytes = 0;
  #ended;
  #wake = () => {};

  constructor(socket, role, patience = 20_000) {
    this.#socket = socket;
    this.#first = role === 'client';
    this.#patience = patience;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      this.#wake();
    });
    const end = (error) => {
      this.#ended ??= error instanceof Error ? error : new Error('the peer has ended the dialogue');
      this.#wake();
    };
    socket.on('error', end).on('end', end).on('close', end);
  }

  /** For who spoils a dialogue. */
  get socket() {
    return this.#socket;
  }

  async read(length) {
    while (this.#bytes < length) {
      if (this.#ended) throw this.#ended;
      await new Promise((resolve, reject) => {
        const late = () => reject(new Error(`no answer: ${this.#bytes} of ${length} bytes`));
        const timer = setTimeout(late, this.#patience);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [all.subarray(length)];
    this.#bytes -= length;
    return all.subarray(0, length);
  }

  async exchange(message, length = message.length) {
    if (this.#first) this.#socket.write(message);
    const answer = await this.read(length);
    if (!this.#first) this.#socket.write(message);
    return answer;
  }

  async exchangeKey(key) {
    return keyOf(await this.exchange(keyLine(key), KEY_BYTES));
  }

  async done() {
    this.#socket.write('done\0');
  }

  /** Ends this side's half, and waits until the peer has ended its own: closing at once would make TCP send RST. */
  async close() {
    this.#socket.end();
    this.#socket.resume();
    if (this.#socket.destroyed) return;
    const timer = setTimeout(() => this.#socket.destroy(), 2000);
    await once(this.#socket, 'close').catch(() => {});
    clearTimeout(timer);
  }
}

/** Waits for one client, or for `signal`. `onListening` is called with the port. */
export async function accept({ host, port, onListening = () => {}, signal }) {
  const server = createServer();
  server.listen(port, host);
  await once(server, 'listening');
  onListening(server.address().port);
  try {
    const [socket] = await once(server, 'connection', { signal });
    return new TcpChannel(socket, 'server');
  } finally {
    server.close();
  }
}

/** Connects, and tries again for 20 s while nobody listens. */
export async function dial({ host, port }) {
  for (const end = Date.now() + 20_000; ; ) {
    const socket = connect({ host, port });
    try {
      await once(socket, 'connect');
      return new TcpChannel(socket, 'client');
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
