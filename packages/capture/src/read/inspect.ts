/** The method by which Node's console shows an object: node:util's `inspect.custom`, without node:util. */
export const inspect: unique symbol = Symbol.for('nodejs.util.inspect.custom');
