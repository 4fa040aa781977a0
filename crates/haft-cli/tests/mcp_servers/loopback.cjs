// Tests load this file into servers that would listen on every interface, so that they listen only on the loopback.
const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  if (typeof port === "object") return listen.call(this, port, ...rest);
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest.filter((one) => typeof one === "function"));
};
