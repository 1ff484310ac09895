// What Swagger's own markup lacks to be used by everybody: a landmark of the title, a heading above those of the groups,
// and no link inside the button that opens an operation.
"use strict";
const forEverybody = ({ React: { Fragment, createElement } }) => ({
  wrapComponents: {
    InfoContainer: (Info) => (props) => createElement("div", { role: "banner" }, createElement(Info, props)),
    operations: (Operations) => (props) =>
      createElement(
        Fragment,
        null,
        createElement("h2", { className: "hidden-heading" }, "Operations"),
        createElement(Operations, props),
      ),
    DeepLink: () => ({ text }) => createElement("span", null, text),
  },
});
